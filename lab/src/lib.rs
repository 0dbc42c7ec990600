//! The words every host shares: [`scenario::Scenario`] (what to run) and [`outcome::Outcome`] (what was seen).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod claim;
pub mod file;
pub mod host;
pub mod metric;
pub mod outcome;
pub mod paper;
pub mod quantity;
pub mod route;
pub mod scenario;
pub mod schema;
pub mod sweep;

pub use outcome::Outcome;
pub use scenario::Scenario;
