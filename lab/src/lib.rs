//! The words every host shares: [`scenario::Scenario`] (what to run) and [`outcome::Outcome`] (what was seen).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod outcome;
pub mod scenario;

pub use outcome::Outcome;
pub use scenario::Scenario;
