//! The credit bucket. Credit is kept as bits times nanoseconds of rate, so nothing is rounded and the rate is held over any time.

use crate::time::Time;
use crate::units::{Bytes, Rate};
use core::time::Duration;

/// One byte at one bit per second: what a byte costs, in bits times nanoseconds of rate.
const BYTE: u128 = 8_000_000_000;
/// More than any depth: cut to it when the first packet comes.
const FULL: u128 = 1 << 100;

/// Credit that comes at a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    rate: Rate,
    /// In bytes * [`BYTE`], like `credit`.
    depth: u128,
    credit: u128,
    updated: Time,
}

impl Bucket {
    /// A full bucket. Credit for the packet that waits is kept even beyond `depth`: so the depth is never less than a packet.
    ///
    /// # Panics
    /// At rate zero, at which nothing would ever leave.
    pub fn new(rate: Rate, depth: Bytes) -> Bucket {
        assert!(rate.0 > 0, "a rate of zero is refused where it is read");
        let depth = depth.0 as u128 * BYTE;
        Bucket { rate, depth, credit: FULL, updated: Time::ZERO }
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Another rate from `now` on; the credit stays.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let earned = self.rate.0 as u128 * now.since(self.updated).as_nanos();
        (self.rate, self.credit, self.updated) =
            (rate, (self.credit + earned).min(FULL), self.updated.max(now));
    }

    /// Credit comes in until `now`, for a packet of `size` that waits.
    fn collect(&mut self, now: Time, size: Bytes) {
        let earned = self.rate.0 as u128 * now.since(self.updated).as_nanos();
        self.credit = (self.credit + earned).min(self.depth.max(size.0 as u128 * BYTE));
        self.updated = self.updated.max(now);
    }

    /// When a packet of `size` may leave, if it waits from now on: `now` if at once.
    pub fn ready_at(&self, now: Time, size: Bytes) -> Time {
        let mut then = *self;
        then.collect(now, size);
        let missing = (size.0 as u128 * BYTE).saturating_sub(then.credit);
        let wait = missing.div_ceil(self.rate.0 as u128).min(u64::MAX as u128) as u64;
        then.updated + Duration::from_nanos(wait)
    }

    /// A packet of `size` leaves at `now` if there is credit for it.
    pub fn take(&mut self, now: Time, size: Bytes) -> bool {
        self.collect(now, size);
        let cost = size.0 as u128 * BYTE;
        let enough = self.credit >= cost;
        if enough {
            self.credit -= cost;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const R: Rate = Rate(128_000);

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    /// Sends packets of 512 bytes as soon as they may leave, from `start` on: when they left.
    fn spaced(bucket: &mut Bucket, start: Time, count: usize) -> Vec<Time> {
        let mut now = start;
        let one = |_| {
            now = bucket.ready_at(now, Bytes(512));
            assert!(bucket.take(now, Bytes(512)));
            now
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn one_kbyte_of_work_ahead_is_two_frames_and_then_32_ms_each() {
        let mut bucket = Bucket::new(R, Bytes(1024));
        assert_eq!(spaced(&mut bucket, ms(5), 5), [ms(5), ms(5), ms(37), ms(69), ms(101)]);
        assert_eq!(spaced(&mut bucket, ms(9000), 3), [ms(9000), ms(9000), ms(9032)], "never more than that");
    }

    #[test]
    fn without_depth_it_is_a_leaky_bucket() {
        let mut bucket = Bucket::new(R, Bytes::ZERO);
        assert_eq!(spaced(&mut bucket, ms(0), 3), [ms(0), ms(32), ms(64)]);
        assert_eq!(spaced(&mut bucket, ms(500), 2), [ms(500), ms(532)]);
    }

    #[test]
    fn a_packet_leaves_not_a_nanosecond_early() {
        let mut bucket = Bucket::new(Rate(3), Bytes::ZERO);
        assert!(bucket.take(Time::ZERO, Bytes(1)));
        let at = bucket.ready_at(Time::ZERO, Bytes(1));
        assert_eq!(at, Time::from_nanos(2_666_666_667), "8 bits at 3 bit/s, rounded up");
        let mut early = bucket;
        assert!(!early.take(at - Duration::from_nanos(1), Bytes(1)) && early.take(at, Bytes(1)));
    }

    proptest! {
        /// Never more than depth (or one packet) and rate times time leave within any interval: the arrival curve of network calculus.
        #[test]
        fn no_interval_has_more_than_the_curve(
            rate in 1_000u64..1_000_000_000,
            depth in 0u64..10_000,
            packets in prop::collection::vec((0u64..50_000_000, 40u64..1500), 1..80),
        ) {
            let mut bucket = Bucket::new(Rate(rate), Bytes(depth));
            let (mut now, mut left) = (Time::ZERO, Vec::new());
            for (gap, size) in packets {
                now += Duration::from_nanos(gap);
                now = bucket.ready_at(now, Bytes(size));
                prop_assert!(bucket.take(now, Bytes(size)));
                left.push((now, size));
            }
            for (i, (from, _)) in left.iter().enumerate() {
                let mut sum = 0;
                for (to, size) in &left[i..] {
                    sum += size;
                    let most = rate as u128 * to.since(*from).as_nanos() + depth.max(1500) as u128 * BYTE;
                    prop_assert!(sum as u128 * BYTE <= most + rate as u128);
                }
            }
        }
    }
}
