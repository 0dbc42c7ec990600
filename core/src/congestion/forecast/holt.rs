//! Double exponential smoothing (C. C. Holt 1957): a level and a trend, each an average that forgets.
//!
//! At uneven times the weight of a value is what a time constant T gives it, `1 - exp(-dt/T)` (D. J. Wright 1986 does the same for
//! the level); with even times that is Holt's method to the letter.

use super::Forecaster;
use crate::time::Time;
use core::time::Duration;

/// Holt's forecaster.
#[derive(Clone, Debug)]
pub struct Holt {
    /// Time constants of level and trend, in seconds.
    constants: (f64, f64),
    last: Option<Time>,
    level: f64,
    /// Per second.
    trend: f64,
}

impl Holt {
    /// Forgets the level after about `level` and the trend after about `trend`.
    pub fn new(level: Duration, trend: Duration) -> Holt {
        Holt { constants: (level.as_secs_f64(), trend.as_secs_f64()), last: None, level: 0.0, trend: 0.0 }
    }
}

/// The weight of a value that comes `dt` seconds after the one before; all of it if nothing is to be remembered.
fn weight(dt: f64, constant: f64) -> f64 {
    if constant > 0.0 { -libm::expm1(-dt / constant) } else { 1.0 }
}

impl Forecaster for Holt {
    fn observe(&mut self, now: Time, value: f64) {
        let Some(last) = self.last else {
            (self.last, self.level) = (Some(now), value);
            return;
        };
        let dt = now.since(last).as_secs_f64();
        if dt <= 0.0 {
            return;
        }
        let (alpha, beta) = (weight(dt, self.constants.0), weight(dt, self.constants.1));
        let expected = self.level + self.trend * dt;
        let error = value - expected;
        self.level = expected + alpha * error;
        // Holt's b = beta (level - level before)/dt + (1 - beta) b, with the level's change b dt + alpha error.
        self.trend += alpha * beta * error / dt;
        self.last = Some(now);
    }

    fn ahead(&self, horizon: Duration) -> f64 {
        self.level + self.trend * horizon.as_secs_f64()
    }
}
