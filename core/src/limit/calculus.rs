//! What can be promised: network calculus for traffic that keeps to a credit bucket. `burst + rate * t` bytes come within any time t
//! at the most (R. Cruz, "A Calculus for Network Delay", IEEE Trans. IT 37(1), 1991; J.-Y. Le Boudec, P. Thiran, "Network Calculus",
//! 2001).
//!
//! **One line.** Classes i keep to (b_i, r_i), and each of their packets is to be through d_i after it came. Earliest deadline first,
//! not interrupting a packet on the line, can do it if and only if the rates' sum is at most C and (J. Liebeherr, D. Wrege, D. Ferrari,
//! "Exact Admission Control for Networks with a Bounded Delay Service", IEEE/ACM ToN 4(6), 1996, theorem 1; L. Georgiadis, R. Guerin,
//! V. Peris, K. Sivarajan, "Efficient Network QoS Provisioning Based on per Node Traffic Shaping", ToN 4(4), 1996)
//!
//! ```text
//!   sum over d_i <= t of (b_i + r_i (t - d_i))  +  Lmax  <=  C t        for every t
//! ```
//! Lmax is the packet that has just begun when the burst comes. Theirs is the largest of the classes with a deadline after t; here it
//! is the line's largest packet at every t, since classes without a deadline send too. The left side jumps at each d_i and grows more
//! slowly than C t between: so the d_i are all that must be looked at.
//!
//! A class that asks for a rate only is promised d = b / r + Lmax / C, Parekh's bound of WFQ for one hop. Classes of this kind alone
//! are always admitted while their rates' sum is at most C: at every t they need no more than (t - Lmax / C) * C.
//!
//! **A path.** A hop that gives a class its credits and then takes d offers the service curve burst + rate (t - d) for t > d. Several
//! in a row offer the sum of their delays, and then the least of their curves (Le Boudec and Thiran, theorem 1.4.6 and rule 6 of 3.1.6
//! for concave curves): a burst that a hop takes is waited for once, not at each hop.

use crate::time::nanos;
use crate::units::{Bytes, Rate};
use alloc::vec::Vec;
use core::time::Duration;

/// One byte, in bits times nanoseconds of rate.
const BYTE: u128 = 8_000_000_000;

/// Traffic of at most `burst + rate * t` bytes within any time t.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// What may come at once.
    pub burst: Bytes,
    /// What may come for ever.
    pub rate: Rate,
}

impl Envelope {
    /// How long the burst takes at its own rate, rounded up to a nanosecond.
    pub fn spread(self) -> Duration {
        wait(self.burst, self.rate)
    }
}

/// How long `bytes` take at `rate`, rounded up.
fn wait(bytes: Bytes, rate: Rate) -> Duration {
    let nanos = (bytes.0 as u128 * BYTE).div_ceil(rate.0.max(1) as u128);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Traffic whose packets are to be through so long after they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// What it keeps to.
    pub envelope: Envelope,
    /// The bound on the delay, transmission included.
    pub delay: Duration,
}

/// A line and the packets on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// C.
    pub rate: Rate,
    /// Lmax.
    pub packet: Bytes,
}

impl Server {
    /// The delay that traffic is promised if it asks for a rate only: b / r + Lmax / C.
    pub fn natural_delay(&self, envelope: Envelope) -> Duration {
        envelope.spread().saturating_add(wait(self.packet, self.rate))
    }

    /// Whether all of these can be kept.
    pub fn admits(&self, promises: &[Promise]) -> bool {
        let mut sorted: Vec<&Promise> = promises.iter().collect();
        sorted.sort_unstable_by_key(|p| p.delay);
        self.schedules(&sorted)
    }

    /// The test, for promises in order of their delays. With the sums of b_i, r_i and r_i d_i each is looked at once.
    fn schedules(&self, sorted: &[&Promise]) -> bool {
        let (mut bursts, mut rates, mut early) = (self.packet.0 as u128 * BYTE, 0u128, 0u128);
        let mut i = 0;
        while let Some(next) = sorted.get(i) {
            let t = nanos(next.delay) as u128;
            while let Some(p) = sorted.get(i).filter(|p| p.delay == next.delay) {
                let rate = p.envelope.rate.0 as u128;
                bursts += p.envelope.burst.0 as u128 * BYTE;
                rates += rate;
                early += rate * t;
                i += 1;
            }
            if bursts + rates * t > self.rate.0 as u128 * t + early {
                return false;
            }
        }
        rates <= self.rate.0 as u128
    }

    /// How many of these, from the first on, can be kept together: one more cannot.
    pub fn fitting(&self, promises: &[Promise]) -> usize {
        most(promises.len() as u64, |n| self.admits(&promises[..n as usize])).unwrap_or(0) as usize
    }

    /// The shortest delay, up to `longest`, that can be promised beside others; `None` if there is none.
    pub fn shortest_delay(
        &self,
        others: &[Promise],
        envelope: Envelope,
        longest: Duration,
    ) -> Option<Duration> {
        let longest = nanos(longest);
        let shorter = |by| Promise { envelope, delay: Duration::from_nanos(longest - by) };
        let by = self.most_beside(others, longest, shorter)?;
        Some(Duration::from_nanos(longest - by))
    }

    /// The largest rate that can be promised beside others, with this burst, and with this delay or that of the rate itself; `None`
    /// if there is none.
    pub fn largest_rate(&self, others: &[Promise], burst: Bytes, delay: Option<Duration>) -> Option<Rate> {
        let promise = |rate| {
            let envelope = Envelope { burst, rate: Rate(rate) };
            Promise { envelope, delay: delay.unwrap_or_else(|| self.natural_delay(envelope)) }
        };
        self.most_beside(others, self.rate.0, promise).map(Rate).filter(|rate| rate.0 > 0)
    }

    /// The largest burst that can be promised beside others, with this rate and delay; `None` if not even none.
    pub fn largest_burst(&self, others: &[Promise], rate: Rate, delay: Duration) -> Option<Bytes> {
        let promise = |burst| Promise { envelope: Envelope { burst: Bytes(burst), rate }, delay };
        self.most_beside(others, self.rate.bytes_in(delay).0, promise).map(Bytes)
    }

    /// The largest number up to `top` whose promise can be kept beside others.
    fn most_beside(&self, others: &[Promise], top: u64, promise: impl Fn(u64) -> Promise) -> Option<u64> {
        let mut sorted: Vec<&Promise> = others.iter().collect();
        sorted.sort_unstable_by_key(|p| p.delay);
        most(top, |n| {
            let one = promise(n);
            let mut all = sorted.clone();
            all.insert(sorted.partition_point(|p| p.delay < one.delay), &one);
            self.schedules(&all)
        })
    }
}

/// The largest number up to `top` that fits, if all smaller ones than a fitting one do.
fn most(top: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if !fits(0) {
        return None;
    }
    let (mut low, mut high) = (0, top);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

/// What a hop does for a class: `burst + rate (t - latency)` bytes of it are through t after they came, for every t > latency. A hop
/// of `reserve` has the class's ahead (or a packet, if that is more), rate and delay; one that only guarantees a rate has no burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// What it takes at once, and at which rate it goes on.
    pub curve: Envelope,
    /// After which time; with the time on the wire, if that is to count.
    pub latency: Duration,
}

/// The bound on the delay over several hops of traffic that keeps to `envelope` where it enters the first one. `None` if a hop is
/// slower than the traffic: then there is no bound.
pub fn end_to_end(envelope: Envelope, hops: &[Hop]) -> Option<Duration> {
    let mut latency = Duration::ZERO;
    let mut burst = Duration::ZERO;
    for hop in hops {
        if hop.curve.rate < envelope.rate {
            return None;
        }
        latency = latency.saturating_add(hop.latency);
        burst = burst.max(wait(envelope.burst.saturating_sub(hop.curve.burst), hop.curve.rate));
    }
    Some(latency.saturating_add(burst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn promise(burst: u64, rate: u64, delay: Duration) -> Promise {
        Promise { envelope: Envelope { burst: Bytes(burst), rate: Rate(rate) }, delay }
    }

    /// 10 Mbit/s and packets of 1500 bytes, which take 1.2 ms.
    const LINE: Server = Server { rate: Rate(10_000_000), packet: Bytes(1500) };

    #[test]
    fn alone_a_burst_waits_for_itself_and_for_one_packet() {
        let envelope = Envelope { burst: Bytes(3000), rate: Rate(1_000_000) };
        // 3000 and 1500 bytes at 10 Mbit/s.
        assert_eq!(LINE.shortest_delay(&[], envelope, ms(1000)), Some(Duration::from_micros(3600)));
        assert_eq!(LINE.largest_rate(&[], Bytes(3000), Some(Duration::from_micros(3600))), Some(LINE.rate));
        assert_eq!(LINE.largest_rate(&[], Bytes(3001), Some(Duration::from_micros(3600))), None);
        assert_eq!(LINE.largest_burst(&[], Rate(1_000_000), Duration::from_micros(3600)), Some(Bytes(3000)));
    }

    #[test]
    fn a_later_deadline_pays_for_an_earlier_one() {
        // At t = d of the second: 3000 + 125 (d - 3.6) bytes of the first, 6000 of the second, a packet: 1250 d, d in ms.
        let first = promise(3000, 1_000_000, Duration::from_micros(3600));
        let second = Envelope { burst: Bytes(6000), rate: Rate(2_000_000) };
        let d = LINE.shortest_delay(&[first], second, ms(1000)).unwrap();
        assert_eq!(d, Duration::from_nanos(((10_500.0 - 125.0 * 3.6) / 1125.0 * 1e6_f64).ceil() as u64));
        // Before 3.6 ms it would have to give way to the first as well.
        assert!(!LINE.admits(&[first, promise(1500, 1_000, Duration::from_micros(3600))]));
    }

    #[test]
    fn rates_alone_are_admitted_up_to_the_lines() {
        let by_rate = |burst, rate| {
            let envelope = Envelope { burst: Bytes(burst), rate: Rate(rate) };
            Promise { envelope, delay: LINE.natural_delay(envelope) }
        };
        let full = [by_rate(1500, 1_000_000), by_rate(40_000, 4_000_000), by_rate(3000, 5_000_000)];
        assert!(LINE.admits(&full));
        let over = [full[0], full[1], by_rate(3000, 5_000_001)];
        assert_eq!((LINE.admits(&over), LINE.fitting(&over)), (false, 2));
    }

    #[test]
    fn a_burst_is_paid_once_over_five_hops() {
        let one = Hop { curve: Envelope { burst: Bytes(1500), rate: Rate(1_000_000) }, latency: ms(13) };
        let traffic = Envelope { burst: Bytes(13_500), rate: Rate(1_000_000) };
        // 12,000 bytes at 1 Mbit/s, once: 96 ms.
        assert_eq!(end_to_end(traffic, &[one; 5]), Some(ms(5 * 13 + 96)));
        let fast = Hop { curve: Envelope { burst: Bytes(0), rate: Rate(9_000_000) }, latency: ms(2) };
        assert_eq!(end_to_end(traffic, &[fast]), Some(ms(14)));
        let slow = Hop { curve: Envelope { burst: Bytes(1500), rate: Rate(999_999) }, latency: ms(13) };
        assert_eq!(end_to_end(traffic, &[one, slow]), None);
    }

    proptest! {
        /// The test looks at the d_i only: it agrees with the inequality at every other instant, and what it calls the shortest delay
        /// or the largest rate fits while the next one does not.
        #[test]
        fn the_limits_it_names_are_the_limits(
            given in prop::collection::vec((0u64..20_000, 1_000u64..4_000_000, 1u64..80_000_000), 1..8),
            burst in 0u64..20_000, rate in 1_000u64..4_000_000, at in 0u64..100_000_000,
        ) {
            let all: Vec<Promise> = given.iter().map(|(b, r, d)| promise(*b, *r, Duration::from_nanos(*d))).collect();
            let need: u128 = all.iter().filter(|p| nanos(p.delay) <= at).map(|p| {
                p.envelope.burst.0 as u128 * BYTE + p.envelope.rate.0 as u128 * (at - nanos(p.delay)) as u128
            }).sum();
            let due = all.iter().any(|p| nanos(p.delay) <= at);
            if due && need + 1500 * BYTE > LINE.rate.0 as u128 * at as u128 {
                prop_assert!(!LINE.admits(&all));
            }
            let others = &all[..LINE.fitting(&all)];
            prop_assert!(LINE.admits(others));
            if others.len() < all.len() {
                prop_assert!(!LINE.admits(&all[..others.len() + 1]));
            }
            let with = |p| LINE.admits(&others.iter().copied().chain([p]).collect::<Vec<_>>());
            let longest = Duration::from_secs(1000);
            if let Some(d) = LINE.shortest_delay(others, Envelope { burst: Bytes(burst), rate: Rate(rate) }, longest) {
                prop_assert!(with(promise(burst, rate, d)) && with(promise(burst, rate, d + ms(5))));
                prop_assert!(!with(promise(burst, rate, d - Duration::from_nanos(1))));
            }
            let delay = Duration::from_nanos(at);
            match LINE.largest_rate(others, Bytes(burst), Some(delay)) {
                Some(most) => {
                    prop_assert!(with(promise(burst, most.0, delay)));
                    prop_assert!(most == LINE.rate || !with(promise(burst, most.0 + 1, delay)));
                }
                None => prop_assert!(!with(promise(burst, 1, delay))),
            }
        }
    }
}
