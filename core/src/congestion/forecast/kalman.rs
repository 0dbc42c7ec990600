//! A Kalman filter (R. E. Kalman 1960) for a queue: q' = arrivals - C, measured now and then.
//!
//! ```text
//!   state: q, d, C      q' = d + C u,  u = load - 1 as the router reports it (0 if it does not)
//!                       d' = noise of density `restless`,  C' = 0
//!   measured: q + noise of variance `noise`
//! ```
//!
//! A router reports its load as a part of its line's rate, so that it need not say the rate: the filter learns C from how the queue
//! follows the load. What the load does not explain is the drift d. While the queue is empty, as it should be, the
//! integral stands at its stop and says nothing of d and C: such a step is left out. An empty queue that should grow is
//! news. A forecast does not hold a slope for longer than senders do: see [`Kalman::of_segments`].

use super::Forecaster;
use crate::time::Time;
use core::time::Duration;

/// The standard deviation of C before anything is known of it, in values per second: 10,000 segments/s are 120 Mbit/s; faster lines
/// take some reports longer.
const RATE_UNKNOWN: f64 = 1e4;
/// The standard deviation of d before anything is known of it. Smaller: what the load can explain it shall.
const DRIFT_UNKNOWN: f64 = 1e3;

/// The filter.
#[derive(Clone, Debug)]
pub struct Kalman {
    restless: f64,
    noise: f64,
    last: Option<(Time, f64)>,
    /// q, d, C.
    state: [f64; 3],
    covariance: [[f64; 3]; 3],
    /// load - 1 as last reported.
    surplus: f64,
    /// How long a slope lasts, in seconds.
    lasts: f64,
}

impl Kalman {
    /// `restless`: how much the variance of the drift (values/s)² grows per second; `noise`: variance of a measurement; `lasts`: the
    /// time constant, in seconds, with which a slope dies away.
    pub fn new(restless: f64, noise: f64, lasts: f64) -> Kalman {
        let (state, covariance) = ([0.0; 3], [[0.0; 3]; 3]);
        Kalman { restless, noise, last: None, state, covariance, surplus: 0.0, lasts }
    }

    /// For the queue of a sender that adds a segment per round trip as Reno does, in segments: within a round trip the drift
    /// changes by about one segment per round trip, and a measurement is off by the segment that is just coming or going. A slope
    /// lasts for half a round trip: senders send what is acknowledged, so that what comes too fast in one half of a round trip is
    /// missing in the other.
    pub fn of_segments(rtt: Duration) -> Kalman {
        let rtt = rtt.as_secs_f64().max(1e-6);
        Kalman::new(1.0 / (rtt * rtt * rtt), 1.0, rtt / 2.0)
    }

    /// The line's rate in values per second, as far as it is known.
    pub fn rate(&self) -> f64 {
        self.state[2]
    }

    fn predict(&mut self, dt: f64) {
        // F = [[1, dt, dt u], [0, 1, 0], [0, 0, 1]]: P = F P F' + Q.
        let f = [1.0, dt, dt * self.surplus];
        self.state[0] += f[1] * self.state[1] + f[2] * self.state[2];
        let p = &self.covariance;
        let row: [f64; 3] = core::array::from_fn(|j| (0..3).map(|i| f[i] * p[i][j]).sum());
        let corner = (0..3).map(|j| row[j] * f[j]).sum();
        self.covariance[0] = [corner, row[1], row[2]];
        (self.covariance[1][0], self.covariance[2][0]) = (row[1], row[2]);
        // A drift of white noise, integrated over dt.
        let q = self.restless;
        self.covariance[0][0] += q * dt * dt * dt / 3.0;
        self.covariance[0][1] += q * dt * dt / 2.0;
        self.covariance[1][0] += q * dt * dt / 2.0;
        self.covariance[1][1] += q * dt;
    }

    fn correct(&mut self, value: f64) {
        let p = self.covariance;
        let variance = p[0][0] + self.noise;
        let error = value - self.state[0];
        if variance <= 0.0 {
            return; // nothing moves and nothing is uncertain
        }
        for i in 0..3 {
            self.state[i] += p[i][0] / variance * error;
            for j in 0..3 {
                self.covariance[i][j] = p[i][j] - p[i][0] * p[0][j] / variance;
            }
        }
    }
}

impl Forecaster for Kalman {
    fn load(&mut self, load: f64) {
        self.surplus = load - 1.0;
    }

    fn observe(&mut self, now: Time, value: f64) {
        let before = self.last.replace((now, value));
        let Some((then, old)) = before else {
            self.state = [value, 0.0, 0.0];
            self.covariance = [
                [self.noise, 0.0, 0.0],
                [0.0, DRIFT_UNKNOWN * DRIFT_UNKNOWN, 0.0],
                [0.0, 0.0, RATE_UNKNOWN * RATE_UNKNOWN],
            ];
            return;
        };
        let dt = now.since(then).as_secs_f64();
        let slope = self.state[1] + self.state[2] * self.surplus;
        if value <= 0.0 && old <= 0.0 && slope <= 0.0 {
            // At the stop: q is known, nothing else is learnt, and the drift may have become any other meanwhile.
            self.state[0] = 0.0;
            self.covariance[0] = [self.noise, 0.0, 0.0];
            (self.covariance[1][0], self.covariance[2][0]) = (0.0, 0.0);
            self.covariance[1][1] =
                (self.covariance[1][1] + self.restless * dt).min(DRIFT_UNKNOWN * DRIFT_UNKNOWN);
            return;
        }
        self.predict(dt);
        self.correct(value);
    }

    fn ahead(&self, horizon: Duration) -> f64 {
        let [q, d, c] = self.state;
        let lasts = -libm::expm1(-horizon.as_secs_f64() / self.lasts) * self.lasts;
        q + (d + c * self.surplus) * lasts
    }
}
