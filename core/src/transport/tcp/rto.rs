//! Round-trip time and the retransmission timeout: BSD's integers on a 500 ms tick, or RFC 6298.
//!
//! Both answer the same two questions: how long is the timeout now, and when does a timer set now fire. BSD's machine-wide slow
//! timer counts ticks, so a timeout of n ticks fires at the n-th tick after it was set: between n-1 and n periods later. That
//! is why a path of 14 ms stalls for 1.0 to 1.5 s: srtt settles at 7/8 and rttvar at 3/4 of a tick, the timeout at 3 ticks.

use crate::time::{Time, nanos};
use core::time::Duration;

/// Ticks of a machine-wide periodic timer (BSD's slow timer, or the fast one for delayed ACKs).
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    period: u64,
    phase: u64,
}

impl Ticks {
    /// A timer of this period whose first tick comes `phase` (taken modulo the period) after the start of the run.
    pub fn new(period: Duration, phase: Duration) -> Ticks {
        let period = nanos(period).max(1);
        Ticks { period, phase: nanos(phase) % period }
    }

    /// Nanoseconds between two.
    #[inline]
    pub fn period(&self) -> u64 {
        self.period
    }

    /// How many ticks there have been until `now`, the one at `now` included.
    #[inline]
    pub fn count(&self, now: Time) -> u64 {
        (now.as_nanos() + self.period - self.phase) / self.period
    }

    /// When the `n`-th tick after `now` comes.
    #[inline]
    pub fn after(&self, now: Time, n: u64) -> Time {
        let tick = self.count(now) + n.max(1);
        Time::from_nanos(
            tick.saturating_mul(self.period).saturating_add(self.phase).saturating_sub(self.period),
        )
    }

    /// `d` in whole ticks, rounded up.
    pub fn in_ticks(&self, d: Duration) -> u64 {
        nanos(d).div_ceil(self.period)
    }
}

/// Bounds of the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Smallest.
    pub min: Duration,
    /// Largest, back-off included.
    pub max: Duration,
    /// Before the first sample.
    pub initial: Duration,
}

/// The estimator with its clock, and the back-off.
#[derive(Clone, Debug)]
pub struct Rto {
    estimator: Estimator,
    bounds: Bounds,
    /// Timeouts in a row without a fresh sample: `t_rxtshift`.
    backoff: u32,
}

#[derive(Clone, Debug)]
enum Estimator {
    /// 4.4BSD `tcp_xmit_timer`: srtt scaled by 8 and rttvar by 4, in ticks. srtt 0 means "none yet".
    Ticks { slow: Ticks, srtt: i64, rttvar: i64 },
    /// RFC 6298, in nanoseconds. srtt 0 means "none yet".
    Rfc6298 { srtt: u64, rttvar: u64 },
}

/// RFC 6298 (2.3): clock granularity G. Ours is a nanosecond; a millisecond keeps the timer above scheduling noise on real
/// hosts and is what implementations use.
const GRANULARITY: u64 = 1_000_000;

impl Rto {
    /// BSD's, on this slow timer.
    pub fn ticks(slow: Ticks, bounds: Bounds) -> Rto {
        Rto { estimator: Estimator::Ticks { slow, srtt: 0, rttvar: 0 }, bounds, backoff: 0 }
    }

    /// RFC 6298's.
    pub fn rfc6298(bounds: Bounds) -> Rto {
        Rto { estimator: Estimator::Rfc6298 { srtt: 0, rttvar: 0 }, bounds, backoff: 0 }
    }

    /// A segment sent at `sent` was acknowledged at `now`: a valid sample, which also ends the back-off.
    pub fn sample(&mut self, now: Time, sent: Time) {
        self.backoff = 0;
        match &mut self.estimator {
            Estimator::Ticks { slow, srtt, rttvar } => {
                let elapsed = (slow.count(now) - slow.count(sent)) as i64; // BSD's `rtt - 1`
                if *srtt == 0 {
                    (*srtt, *rttvar) = ((elapsed + 1) << 3, (elapsed + 1) << 1);
                    return;
                }
                let delta = elapsed - (*srtt >> 3);
                *srtt = (*srtt + delta).max(1);
                *rttvar = (*rttvar + delta.abs() - (*rttvar >> 2)).max(1);
            }
            Estimator::Rfc6298 { srtt, rttvar } => {
                let r = nanos(now.since(sent)).max(1);
                if *srtt == 0 {
                    (*srtt, *rttvar) = (r, r / 2); // (2.2)
                    return;
                }
                *rttvar = *rttvar - *rttvar / 4 + srtt.abs_diff(r) / 4; // (2.3), beta = 1/4, before srtt
                *srtt = *srtt - *srtt / 8 + r / 8; // alpha = 1/8
            }
        }
    }

    /// The timer fired: back off.
    pub fn back_off(&mut self) {
        self.backoff += 1;
        if let Estimator::Ticks { srtt, rttvar, .. } = &mut self.estimator
            && self.backoff > 3
            && *srtt != 0
        {
            // BSD, after a quarter of the allowed timeouts: the route may have changed, start the estimate afresh.
            *rttvar += *srtt >> 3;
            *srtt = 0;
        }
    }

    /// The SYN was lost: data begins with 3 s and no back-off (RFC 6298 (5.7)). BSD keeps its back-off until a sample.
    pub fn after_lost_syn(&mut self) {
        if let Estimator::Rfc6298 { .. } = self.estimator {
            self.backoff = 0;
            self.bounds.initial = self.bounds.initial.max(Duration::from_secs(3));
        }
    }

    /// Timeouts in a row.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// The timeout now, back-off included.
    pub fn timeout(&self) -> Duration {
        let doubled = |base: u64| base.saturating_mul(1 << self.backoff.min(6)); // BSD's table ends at 64
        match &self.estimator {
            Estimator::Ticks { slow, srtt, rttvar } => {
                let base = if *srtt == 0 && *rttvar == 0 {
                    slow.in_ticks(self.bounds.initial)
                } else {
                    ((*srtt >> 3) + *rttvar) as u64
                };
                let ticks =
                    doubled(base).clamp(slow.in_ticks(self.bounds.min), slow.in_ticks(self.bounds.max));
                Duration::from_nanos(ticks * slow.period)
            }
            Estimator::Rfc6298 { srtt, rttvar } => {
                let base = if *srtt == 0 {
                    nanos(self.bounds.initial)
                } else {
                    *srtt + (4 * *rttvar).max(GRANULARITY)
                };
                let (min, max) = (nanos(self.bounds.min), nanos(self.bounds.max)); // (2.4), (2.5)
                Duration::from_nanos(doubled(base.max(min)).min(max))
            }
        }
    }

    /// When a retransmission timer set now fires.
    #[inline]
    pub fn expiry(&self, now: Time) -> Time {
        match &self.estimator {
            Estimator::Ticks { slow, .. } => slow.after(now, nanos(self.timeout()) / slow.period),
            Estimator::Rfc6298 { .. } => now + self.timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BSD: Bounds =
        Bounds { min: Duration::from_secs(1), max: Duration::from_secs(64), initial: Duration::from_secs(3) };
    const RFC: Bounds =
        Bounds { min: Duration::from_secs(1), max: Duration::from_secs(60), initial: Duration::from_secs(1) };

    fn slow(phase_ms: u64) -> Ticks {
        Ticks::new(Duration::from_millis(500), Duration::from_millis(phase_ms))
    }

    #[test]
    fn ticks_come_at_the_phase_and_every_period() {
        let t = slow(120);
        assert_eq!(t.after(Time::ZERO, 1), Time::from_millis(120));
        assert_eq!(t.after(Time::from_millis(120), 1), Time::from_millis(620), "strictly after");
        assert_eq!(t.after(Time::from_millis(121), 3), Time::from_millis(1620));
        assert_eq!((t.count(Time::from_millis(119)), t.count(Time::from_millis(120))), (0, 1));
    }

    #[test]
    fn a_short_path_settles_at_three_ticks_and_fires_after_1_to_1_5_s() {
        let mut rto = Rto::ticks(slow(0), BSD);
        assert_eq!(rto.timeout(), Duration::from_secs(3), "before any sample");
        for i in 0..200 {
            // 14 ms, never across a tick.
            rto.sample(Time::from_millis(500 * i + 114), Time::from_millis(500 * i + 100));
        }
        assert_eq!(rto.timeout(), Duration::from_millis(1500));
        assert_eq!(rto.expiry(Time::from_millis(100)), Time::from_millis(1500));
        assert_eq!(rto.expiry(Time::from_millis(499)), Time::from_millis(1500), "1.001 s later");
    }

    #[test]
    fn bsd_backs_off_to_64_times_and_64_s() {
        let mut rto = Rto::ticks(slow(0), BSD);
        rto.sample(Time::from_millis(14), Time::ZERO);
        let timeouts: std::vec::Vec<u64> =
            (0..8).map(|_| (rto.timeout().as_millis() as u64, rto.back_off()).0).collect();
        assert_eq!(timeouts, [1500, 3000, 6000, 12000, 24000, 48000, 64000, 64000]);
    }

    #[test]
    fn rfc_6298_section_2_worked() {
        let mut rto = Rto::rfc6298(Bounds { min: Duration::from_millis(1), ..RFC });
        rto.sample(Time::from_millis(100), Time::ZERO);
        assert_eq!(rto.timeout(), Duration::from_millis(300), "R + 4 R/2");
        rto.sample(Time::from_millis(300), Time::from_millis(100)); // R' = 200
        // rttvar = 3/4 50 + 1/4 100 = 62.5; srtt = 7/8 100 + 1/8 200 = 112.5; RTO = 362.5
        assert_eq!(rto.timeout(), Duration::from_micros(362_500));
        rto.back_off();
        assert_eq!(rto.timeout(), Duration::from_micros(725_000), "(5.5)");
        rto.sample(Time::from_millis(400), Time::from_millis(300));
        assert!(rto.timeout() < Duration::from_micros(400_000), "a fresh sample ends the back-off");
    }
}
