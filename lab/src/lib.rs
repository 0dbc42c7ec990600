//! The words every host shares: [`scenario::Scenario`] (what to run) and [`outcome::Outcome`] (what was seen); and the parts
//! every host is made of: the [`line`] that packets cross, the [`agenda`] that says what happens next, the
//! [`meter`] and the [`record`]er of a flow.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agenda;
pub mod claim;
pub mod class;
pub mod file;
pub mod host;
pub mod line;
pub mod meter;
pub mod metric;
pub mod outcome;
pub mod paper;
pub mod parts;
pub mod quantity;
pub mod record;
pub mod route;
pub mod scenario;
pub mod schema;
pub mod sweep;

pub use outcome::Outcome;
pub use scenario::Scenario;
