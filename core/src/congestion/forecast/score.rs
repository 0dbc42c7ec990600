//! Who forecasts best: the root of the mean square error of several forecasters at several horizons, against what the series really
//! was later, in constant memory.
//!
//! Series are of queues, and a forecast of less than nothing counts as nothing, as who acts on it takes it. Horizons count in round trips. A forecast waits in a ring until the
//! series has passed the instant it is for, and is compared with the straight line between the two values around it. A ring holds [`WAITING`] of them; forecasts are made that far apart.

use super::Forecaster;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Forecasts that wait to be compared, per horizon: they are made this often within it.
pub const WAITING: u32 = 16;

/// One horizon: forecasts under way, and what became of the others.
struct Horizon {
    round_trips: f64,
    /// When each is for, and what each forecaster says.
    waiting: VecDeque<(Time, Vec<f64>)>,
    next: Time,
    squares: Vec<f64>,
    count: u64,
}

/// Compares forecasters over one series.
pub struct Score {
    forecasters: Vec<Box<dyn Forecaster>>,
    horizons: Vec<Horizon>,
    last: Option<(Time, f64)>,
}

impl Score {
    /// Of these forecasters at these horizons, which count in round trips.
    pub fn new(forecasters: Vec<Box<dyn Forecaster>>, round_trips: &[f64]) -> Score {
        let horizon = |round_trips: &f64| Horizon {
            round_trips: *round_trips,
            waiting: VecDeque::with_capacity(WAITING as usize),
            next: Time::ZERO,
            squares: forecasters.iter().map(|_| 0.0).collect(),
            count: 0,
        };
        Score { horizons: round_trips.iter().map(horizon).collect(), forecasters, last: None }
    }

    /// The load reported with the next value: see [`Forecaster::load`].
    pub fn load(&mut self, load: f64) {
        self.forecasters.iter_mut().for_each(|f| f.load(load));
    }

    /// So much is in flight: see [`Forecaster::sent`].
    pub fn sent(&mut self, now: Time, flight: f64) {
        self.forecasters.iter_mut().for_each(|f| f.sent(now, flight));
    }

    /// The series has this value now; the round trip takes `rtt`.
    pub fn observe(&mut self, now: Time, value: f64, rtt: Duration) {
        let last = self.last.replace((now, value));
        for horizon in &mut self.horizons {
            horizon.compare(last.unwrap_or((now, value)), (now, value));
        }
        self.forecasters.iter_mut().for_each(|f| f.observe(now, value));
        for horizon in &mut self.horizons {
            horizon.forecast(now, rtt, &self.forecasters);
        }
    }

    /// What forecaster `i` says of this horizon.
    pub fn ahead(&self, i: usize, horizon: Duration) -> f64 {
        self.forecasters[i].ahead(horizon).max(0.0)
    }

    /// The RMSE of forecaster `i` at horizon `h`, both as numbered when it was made; `None` before any forecast has come due.
    pub fn rmse(&self, i: usize, h: usize) -> Option<f64> {
        let horizon = &self.horizons[h];
        (horizon.count > 0).then(|| libm::sqrt(horizon.squares[i] / horizon.count as f64))
    }

    /// How many forecasts have been compared at horizon `h`.
    pub fn compared(&self, h: usize) -> u64 {
        self.horizons[h].count
    }
}

impl Horizon {
    fn compare(&mut self, (t, v): (Time, f64), (now, value): (Time, f64)) {
        while let Some((due, said)) = self.waiting.front()
            && *due <= now
        {
            let span = now.since(t).as_secs_f64();
            let part = if span > 0.0 { due.since(t).as_secs_f64() / span } else { 1.0 };
            let truth = v + part * (value - v);
            for (sum, said) in self.squares.iter_mut().zip(said) {
                *sum += (said - truth) * (said - truth);
            }
            self.count += 1;
            self.waiting.pop_front();
        }
    }

    fn forecast(&mut self, now: Time, rtt: Duration, forecasters: &[Box<dyn Forecaster>]) {
        let ahead = Duration::from_secs_f64(self.round_trips * rtt.as_secs_f64());
        let due = now + ahead;
        // In the order of their instants, also when the round trip has become shorter.
        let in_order = self.waiting.back().is_none_or(|(last, _)| *last < due);
        if now >= self.next && in_order && self.waiting.len() < WAITING as usize {
            self.next = now + ahead / WAITING;
            self.waiting.push_back((due, forecasters.iter().map(|f| f.ahead(ahead).max(0.0)).collect()));
        }
    }
}
