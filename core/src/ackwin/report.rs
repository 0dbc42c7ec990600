//! What a router reports of a queue into the ACKs that pass ([`crate::wire::tcp::states`]): what waits, its average, and the load.
//!
//! The load is what came lately, in parts of what the line could carry: arrivals leak out of a bucket with a time constant T, so that
//! it holds T times their rate (exponential averaging by time, as in I. Stoica, S. Shenker, H. Zhang 1998). The average is RED's,
//! over what each packet that comes back finds.

use super::WEIGHT;
use crate::time::Time;
use crate::units::Rate;
use crate::wire::tcp::RouterState;
use core::time::Duration;

/// Measures one queue.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// T.
    over: Duration,
    /// Bytes that have come and not leaked, and at which instant.
    recent: f64,
    at: Time,
    /// Bytes.
    average: f64,
}

impl Reporter {
    /// Of a queue to which nothing has come; the load is averaged over `over`.
    pub fn new(over: Duration) -> Reporter {
        Reporter { over, recent: 0.0, at: Time::ZERO, average: 0.0 }
    }

    /// The same measurements go on, averaged as `self` says.
    #[must_use]
    pub(super) fn after(self, old: Reporter) -> Reporter {
        let recent = old.recent * self.over.as_secs_f64() / old.over.as_secs_f64();
        Reporter { over: self.over, recent, ..old }
    }

    fn leak(&mut self, now: Time) {
        let dt = now.since(self.at);
        if !dt.is_zero() {
            self.recent *= libm::exp(-dt.as_secs_f64() / self.over.as_secs_f64());
            self.at = now;
        }
    }

    /// A packet of so many bytes comes to the queue, whether it finds room or not.
    #[inline]
    pub fn came(&mut self, now: Time, bytes: u64) {
        self.leak(now);
        self.recent += bytes as f64;
    }

    /// What is reported as a packet comes back: `waiting` bytes before a line of that rate.
    pub fn state(&mut self, now: Time, router: u16, waiting: u64, rate: Rate) -> RouterState {
        self.leak(now);
        self.average += WEIGHT * (waiting as f64 - self.average);
        let could = rate.0.max(1) as f64 / 8.0 * self.over.as_secs_f64();
        RouterState {
            router,
            queue: RouterState::units(waiting as f64),
            average: RouterState::units(self.average),
            load: RouterState::parts(self.recent / could),
            time: (now.as_nanos() / 1_000_000) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_rate_of_arrivals_over_the_rate_of_the_line() {
        // 1500 bytes per millisecond are 12 Mbit/s: 1.2 times 10 Mbit/s, 307 of 256. Seen in the middle between two arrivals.
        let mut reporter = Reporter::new(Duration::from_millis(50));
        (0..1000).for_each(|ms| reporter.came(Time::from_millis(ms), 1500));
        let state = reporter.state(Time::from_nanos(999_500_000), 3, 6400, Rate(10_000_000));
        assert_eq!((state.router, state.queue, state.load, state.time), (3, 100, 307, 999));
        // 50 ms of silence leave 1/e of it, 113.
        let state = reporter.state(Time::from_nanos(1_049_500_000), 3, 0, Rate(10_000_000));
        assert_eq!((state.queue, state.load, state.time), (0, 113, 1049));
    }

    #[test]
    fn the_average_moves_by_a_five_hundredth_of_the_way() {
        let mut reporter = Reporter::new(Duration::from_millis(50));
        let averages = [64_000, 64_000].map(|q| reporter.state(Time::ZERO, 0, q, Rate(1)).average);
        assert_eq!(averages, [2, 4], "128 and 255.7 bytes");
        (0..5000).for_each(|_| _ = reporter.state(Time::ZERO, 0, 64_000, Rate(1)));
        assert_eq!(reporter.state(Time::ZERO, 0, 64_000, Rate(1)).average, 1000);
    }

    #[test]
    fn a_line_that_is_overrun_a_thousandfold_saturates_the_field_and_no_more() {
        let mut reporter = Reporter::new(Duration::from_millis(1));
        reporter.came(Time::ZERO, 1 << 40);
        let state = reporter.state(Time::ZERO, 0, 1 << 40, Rate(0));
        assert_eq!((state.queue, state.load), (65_535, 65_535));
    }
}
