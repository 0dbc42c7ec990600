//! Quantities as types, so that a gain can never be compared with bytes: `Bytes`, `Rate`.
//! Durations are `core::time::Duration`; instants are [`crate::time::Time`].

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

/// An amount of data, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No data.
    pub const ZERO: Bytes = Bytes(0);
    /// More than any window or buffer.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// The difference, or zero if `other` is larger.
    #[inline]
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    #[inline]
    fn add(self, o: Bytes) -> Bytes {
        Bytes(self.0 + o.0)
    }
}
impl AddAssign for Bytes {
    #[inline]
    fn add_assign(&mut self, o: Bytes) {
        self.0 += o.0;
    }
}
impl Sub for Bytes {
    type Output = Bytes;
    #[inline]
    fn sub(self, o: Bytes) -> Bytes {
        Bytes(self.0 - o.0)
    }
}
impl SubAssign for Bytes {
    #[inline]
    fn sub_assign(&mut self, o: Bytes) {
        self.0 -= o.0;
    }
}
impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// A data rate, in bits per second. Which layer it counts is said where it is used: links count whole IP packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// How long `size` bytes take to pass, truncated to a nanosecond. A link that must not drift uses
    /// [`Rate::transmit`] instead.
    #[inline]
    pub fn time_for(self, size: Bytes) -> Duration {
        let nanos = (size.0 as u128 * 8_000_000_000) / self.0.max(1) as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Nanoseconds that `size` bytes occupy the line. `carry` keeps the remainder of the division (in units of 1/rate
    /// nanoseconds) for the next packet, so that a busy line runs at exactly this rate for ever. The rate must not be 0.
    #[inline]
    pub fn transmit(self, size: u32, carry: &mut u64) -> u64 {
        let work = size as u64 * 8_000_000_000 + *carry;
        *carry = work % self.0;
        work / self.0
    }

    /// How many bytes pass in `d`, rounded down.
    #[inline]
    pub fn bytes_in(self, d: Duration) -> Bytes {
        Bytes(((self.0 as u128 * d.as_nanos()) / 8_000_000_000).min(u64::MAX as u128) as u64)
    }

    /// The rate at which `bytes` pass in `d`; `None` if no time has passed.
    pub fn over(bytes: Bytes, d: Duration) -> Option<Rate> {
        let nanos = d.as_nanos();
        (nanos > 0).then(|| Rate((bytes.0 as u128 * 8_000_000_000 / nanos).min(u64::MAX as u128) as u64))
    }

    /// This rate times a dimensionless gain.
    pub fn scale(self, gain: f64) -> Rate {
        Rate((self.0 as f64 * gain) as u64)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bit/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_carry_runs_at_exactly_its_rate() {
        let (rate, mut carry, mut t) = (Rate(45_000_000), 0, 0);
        for _ in 0..45_000_000 / 8 / 1000 {
            t += rate.transmit(1000, &mut carry);
        }
        assert_eq!((t, carry), (1_000_000_000, 0), "5,625 packets of 1000 bytes are one second at 45 Mbit/s");
    }

    #[test]
    fn rate_bytes_and_time_agree() {
        let rate = Rate(41_000_000);
        assert_eq!(rate.bytes_in(Duration::from_millis(16)), Bytes(82_000));
        assert_eq!(rate.time_for(Bytes(82_000)), Duration::from_millis(16));
        assert_eq!(Rate::over(Bytes(82_000), Duration::from_millis(16)), Some(rate));
        assert_eq!(Rate::over(Bytes(1), Duration::ZERO), None);
    }
}
