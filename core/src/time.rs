//! The clock every algorithm is told: nanoseconds since the start of the run.
//!
//! Nothing in this crate reads a clock. A host passes `now` in, and asks when it should call again.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// An instant, in nanoseconds since the start of the run. 2^64 ns are 584 years, so sums do not overflow in practice;
/// they saturate if they ever would.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than any instant a host reaches: "never".
    pub const MAX: Time = Time(u64::MAX);

    /// `n` nanoseconds after the start.
    #[inline]
    pub const fn from_nanos(n: u64) -> Time {
        Time(n)
    }

    /// `n` milliseconds after the start.
    #[inline]
    pub const fn from_millis(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    /// `s` seconds after the start, rounded to a nanosecond.
    pub fn from_secs_f64(s: f64) -> Time {
        Time(libm::round(s * 1e9) as u64)
    }

    /// Nanoseconds since the start.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start, for reports.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[inline]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of a duration, saturating at 584 years.
#[inline]
pub(crate) fn nanos(d: Duration) -> u64 {
    d.as_secs().saturating_mul(1_000_000_000).saturating_add(d.subsec_nanos() as u64)
}

impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_plus_a_duration_and_back() {
        let t = Time::from_millis(1500);
        assert_eq!(t + Duration::from_millis(250), Time::from_nanos(1_750_000_000));
        assert_eq!((t + Duration::from_millis(250)).since(t), Duration::from_millis(250));
        assert_eq!(t.since(t + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
    }
}
