//! Forecasting a router's queue: what T. Nagata, T. Miyazato, Y. Taniguchi and S. Tamaki (about 2003) announce as future work.
//! Routers put their state into the ACKs that pass, the sender keeps a time series of each and forecasts its queue; what it sends
//! now comes to the queue half a round trip later.
//!
//! ```text
//!   reports, at uneven times ──> forecaster ──> queue one horizon from now
//!                                      └──────> score: RMSE against what the queue was then
//! ```
//!
//! | file | forecaster | what it takes the queue for |
//! |---|---|---|
//! | here | [`Persistence`] | what it is now: the baseline |
//! | [`holt`] | [`holt::Holt`] | a level and a trend, both smoothed |
//! | [`ar`] | [`ar::Ar`] | a linear function of its last p values, learnt as it goes |
//! | [`kalman`] | [`kalman::Kalman`] | the integral of what arrives less what leaves |
//! | [`own`] | [`own::Own`] | what it is now, and what this sender has sent since |
//!
//! [`control`] is the controller `forecast`, which acts on them. [`series`] makes even times of uneven ones, [`score`] tells who was
//! right. The paper names no method; these are the classical ones, and what only a sender can know. Values are numbers of the order 1 to 1000 for the sake of the arithmetic: a queue in segments, not in bytes.

pub mod ar;
pub mod control;
pub mod holt;
pub mod kalman;
pub mod own;
pub mod score;
pub mod series;
#[cfg(test)]
mod tests;

pub use control::ENTRY;

use crate::time::Time;
use core::time::Duration;

/// Forecasts a series from its past.
pub trait Forecaster: Send {
    /// What arrived at the queue since the last value, as a part of what its line could carry: 1.25 is a quarter too much. Said
    /// before the value it belongs to, by routers that report it.
    fn load(&mut self, _load: f64) {}
    /// This sender has so much in flight now, in the unit of the values. Said whenever it changes.
    fn sent(&mut self, _now: Time, _flight: f64) {}
    /// The series has this value now. Time does not go back; of two values at one instant a forecaster may leave out either.
    fn observe(&mut self, now: Time, value: f64);
    /// What it will be this long after the last value; 0 before the first.
    fn ahead(&self, horizon: Duration) -> f64;
}

/// It stays as it is: what every other forecaster must beat.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Persistence(f64);

impl Forecaster for Persistence {
    fn observe(&mut self, _now: Time, value: f64) {
        self.0 = value;
    }
    fn ahead(&self, _horizon: Duration) -> f64 {
        self.0
    }
}
