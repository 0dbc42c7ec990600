//! Persistence, and what this sender itself has sent since: the part of a queue's future that its sender already knows.
//!
//! ```text
//!   own segments in flight  u ──lag──┐
//!                                    +──> queue q = u(t - lag) + z        z: the others, less what the path holds
//!   forecast                         q(t + h) = z(t) + u(t + h - lag),    of u no more than is known now
//! ```
//!
//! A report is older by the way back, and what is sent comes to the queue later by the way there: the lag, which is next to nothing for a
//! queue beside the sender, a round trip for one beside the receiver. It is learnt: each of [`LAGS`], and the belief that own
//! segments do not matter, foretells the report of now from the one a round trip ago, and the one that errs least is believed. Until
//! any has been tried it is half a round trip.
//!
//! An empty queue says only that the path holds more than what comes: how much more, the load says, as if this sender alone made it.

use super::Forecaster;
use crate::time::Time;
use alloc::collections::VecDeque;
use core::time::Duration;

/// In round trips, the likeliest first.
const LAGS: [f64; 5] = [0.5, 0.25, 0.75, 0.0, 1.0];
/// Values are kept this often per round trip.
const PER_ROUND: u32 = 32;
/// Errors are forgotten after 16 round trips, as `ar` forgets.
const FORGETTING: f64 = 1.0 / (16.0 * PER_ROUND as f64);
/// Less than half a segment waits: the queue is empty.
const EMPTY: f64 = 0.5;

/// What had which value from when on, for some round trips.
#[derive(Clone, Debug, Default)]
struct Past(VecDeque<(Time, f64)>);

impl Past {
    /// Keeps a value, and others for three round trips. `true` if it is not one of those that are too near to the one before.
    fn keep(&mut self, now: Time, value: f64, spacing: Duration) -> bool {
        if let Some((at, last)) = self.0.back_mut()
            && now.since(*at) < spacing
        {
            *last = value;
            return false;
        }
        if self.0.len() >= 3 * PER_ROUND as usize {
            self.0.pop_front();
        }
        self.0.push_back((now, value));
        true
    }

    /// What it was then, or the first known.
    fn at(&self, then: Time) -> f64 {
        let behind = self.0.partition_point(|(at, _)| *at <= then);
        self.0.get(behind.saturating_sub(1)).map_or(0.0, |(_, value)| *value)
    }
}

/// A lag, and how well it explains.
#[derive(Clone, Copy, Debug, Default)]
struct Lag {
    lag: Duration,
    /// z.
    others: f64,
    error: f64,
}

/// The forecaster.
#[derive(Clone, Debug)]
pub struct Own {
    rtt: Duration,
    flight: Past,
    queue: Past,
    now: Time,
    last: f64,
    /// Averaged over a round trip.
    load: f64,
    load_at: Option<f64>,
    lags: [Lag; LAGS.len()],
    /// Of persistence.
    error: f64,
}

impl Own {
    /// For a sender with that round trip.
    pub fn new(rtt: Duration) -> Own {
        let lags = LAGS.map(|part| Lag { lag: rtt.mul_f64(part), ..Lag::default() });
        let (flight, queue) = (Past::default(), Past::default());
        Own { rtt, flight, queue, now: Time::ZERO, last: 0.0, load: 0.0, load_at: None, lags, error: 0.0 }
    }

    /// The lag that is believed; `None`: own segments do not matter.
    pub fn lag(&self) -> Option<Duration> {
        self.best().map(|lag| lag.lag)
    }

    fn best(&self) -> Option<&Lag> {
        // The first of equals: nothing has been learnt, and half a round trip is the guess.
        let best = self.lags.iter().reduce(|a, b| if b.error < a.error { b } else { a });
        best.filter(|lag| lag.error <= self.error)
    }

    fn before(&self, age: Duration) -> Time {
        Time::from_nanos(self.now.as_nanos().saturating_sub(crate::time::nanos(age)))
    }
}

impl Forecaster for Own {
    fn load(&mut self, load: f64) {
        self.load_at = Some(load);
    }

    fn sent(&mut self, now: Time, flight: f64) {
        self.flight.keep(now, flight, self.rtt / PER_ROUND);
    }

    fn observe(&mut self, now: Time, value: f64) {
        let dt = now.since(self.now).as_secs_f64() / self.rtt.as_secs_f64().max(1e-9);
        (self.now, self.last) = (now, value);
        if let Some(load) = self.load_at {
            self.load += -libm::expm1(-dt) * (load - self.load);
        }
        let then = self.before(self.rtt);
        let known = self.queue.0.front().is_some_and(|(at, _)| *at <= then);
        let was = self.queue.at(then);
        // From an empty queue nothing is learnt: how much it lacked is not known. One that runs empty says so.
        let learns = self.queue.keep(now, value, self.rtt / PER_ROUND) && known && was > EMPTY;
        for i in 0..self.lags.len() {
            let Lag { lag, .. } = self.lags[i];
            let own = self.flight.at(self.before(lag));
            if learns {
                let expected = was + own - self.flight.at(self.before(lag + self.rtt));
                let miss = expected.max(0.0) - value;
                self.lags[i].error += FORGETTING * (miss * miss - self.lags[i].error);
            }
            // A load below a sixteenth says no more than that there is much room.
            let path = if value > EMPTY { own - value } else { own / self.load.clamp(1.0 / 16.0, 1.0) };
            self.lags[i].others = -path;
        }
        if learns {
            self.error += FORGETTING * ((was - value) * (was - value) - self.error);
        }
    }

    fn ahead(&self, horizon: Duration) -> f64 {
        let Some(Lag { lag, others, .. }) = self.best() else { return self.last };
        let own = self.flight.at(self.before(lag.saturating_sub(horizon)));
        (others + own).max(0.0)
    }
}
