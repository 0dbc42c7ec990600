//! What `becc-modern` adds to the paper: another way to the same two numbers, available bandwidth and smallest RTT, each part
//! with a switch of its own. With every switch off this estimator is silent and the paper's control block decides alone.
//!
//! * `early` (no compulsory first loss): slow start has filled the path when four RTTs in a row lie above the smallest by an
//!   eighth, 4 to 16 ms (HyStart's threshold, RFC 9406 section 4.2; its eight samples from the start of a round come a round
//!   too late for a buffer of two BDP), or when the bandwidth has not grown by a quarter for three rounds (BBR's "full pipe",
//!   draft-ietf-ccwg-bbr section 5.3.1.2). The first window is set then; should it be too small, it grows by tracking.
//! * `windowed`: the most of the last rounds instead of since the last loss; the least of the last seconds instead of ever.
//!   When a smallest RTT has grown old, half the bandwidth-delay product must do for 200 ms so that a true one can be seen
//!   (BBR's ProbeRTT, draft-ietf-ccwg-bbr section 5.3.4): a route that has become longer is found, and a standing queue is not
//!   mistaken for one. Flows that share a queue see it empty at the same time, so from then on they look together.
//! * `per_ack`: delivery-rate samples, whose interval is the longer of sending and acknowledging, instead of what falls into
//!   30 ms: no quantisation, and compressed ACKs do not look like bandwidth.
//! * `track`: follow `bandwidth x RTT + headroom` every round instead of probing by a quarter every 1.5 s. A flow that keeps a
//!   constant number of segments queued obeys FAST's law w = (minRTT/RTT) w + alpha (Wei, Jin, Low, Hegde 2006), whose rest point
//!   gives flows with equal alpha equal rates; growth by alpha per round also finds freed bandwidth in a few round trips. Ours
//!   gives way where the queue grows long, see [`Estimator::window`].
//! * `pacing`: the window spread over the RTT, so that shallow buffers see no bursts.

use crate::congestion::{Ack, Start};
use crate::time::{Time, nanos};
use crate::units::{Bytes, Rate};
use alloc::collections::VecDeque;
use core::time::Duration;

/// Which parts are on.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)] // the parameters of the same names
pub struct Switches {
    pub early: bool,
    pub windowed: bool,
    pub rate_rounds: u64,
    pub rtt_window: Duration,
    pub per_ack: bool,
    pub track: bool,
    pub headroom: u64,
    pub pacing: bool,
}

/// How long the queue is drained when the smallest RTT has grown old, and at least how many rounds: what was in flight must
/// pass before a sample is clean. BBR: ProbeRTTDuration.
const DRAIN: (Duration, u64) = (Duration::from_millis(200), 2);
/// RTTs in a row before a rise is believed.
const RISEN_SAMPLES: usize = 4;
/// Growth that shows the path was not yet full, and how many rounds without it mean it is.
const FULL_GAIN: (f64, u32) = (1.25, 3);

/// Bandwidth and smallest RTT.
#[derive(Clone, Debug)]
pub struct Estimator {
    /// Which parts are on.
    pub switches: Switches,
    /// Rates by round, falling: the first is the largest of those that count.
    rates: VecDeque<(u64, Rate)>,
    round: u64,
    min_rtt: Option<(Duration, Time)>,
    last_rtt: Duration,
    /// The last RTTs, the newest anywhere.
    recent: [Duration; RISEN_SAMPLES],
    samples: usize,
    full: (Rate, u32),
    draining: Option<Drain>,
}

/// The queue is being drained.
#[derive(Clone, Copy, Debug)]
struct Drain {
    until: Time,
    /// The round after which samples are clean, and draining may end.
    clean: u64,
    /// The smallest clean RTT so far.
    least: Option<Duration>,
}

impl Estimator {
    /// With nothing measured.
    pub fn new(switches: Switches) -> Estimator {
        Estimator {
            switches,
            rates: VecDeque::new(),
            round: 0,
            min_rtt: None,
            last_rtt: Duration::ZERO,
            recent: [Duration::ZERO; RISEN_SAMPLES],
            samples: 0,
            full: (Rate(0), 0),
            draining: None,
        }
    }

    fn silent(&self) -> bool {
        let s = &self.switches;
        !(s.early || s.windowed || s.per_ack || s.track)
    }

    /// The connection begins; its handshake may have met an emptier queue than any data will.
    pub fn on_start(&mut self, start: &Start) {
        self.min_rtt = start.rtt.map(|rtt| (rtt, start.now));
    }

    /// A period of `swnd_timer` ended with `bytes` acknowledged in it.
    #[inline]
    pub fn on_bin(&mut self, bytes: u32, period: Duration) {
        if !self.switches.per_ack
            && !self.silent()
            && let Some(rate) = Rate::over(Bytes(bytes as u64), period)
        {
            self.note_rate(rate);
        }
    }

    fn note_rate(&mut self, rate: Rate) {
        while self.rates.back().is_some_and(|(_, r)| *r <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
    }

    fn note_rtt(&mut self, now: Time, rtt: Duration) {
        self.last_rtt = rtt;
        self.recent[self.samples % RISEN_SAMPLES] = rtt;
        self.samples += 1;
        if self.min_rtt.is_none_or(|(min, _)| rtt <= min) {
            self.min_rtt = Some((rtt, now));
        }
        if let Some(drain) = &mut self.draining
            && self.round + 1 >= drain.clean
        {
            drain.least = Some(drain.least.map_or(rtt, |l| l.min(rtt)));
        }
    }

    /// An ACK arrived. Returns the window to set, if this is the moment to set one.
    #[inline]
    pub fn on_ack(&mut self, ack: &Ack, mss: u32, bounded: bool) -> Option<u64> {
        if self.silent() && !self.switches.pacing {
            return None;
        }
        if let Some(rtt) = ack.rtt {
            self.note_rtt(ack.now, rtt);
        }
        if let (true, Some(sample)) = (self.switches.per_ack, ack.rate)
            && self.min_rtt.is_some_and(|(min, _)| sample.interval >= min)
            && (!sample.app_limited || sample.rate > self.bandwidth())
        {
            self.note_rate(sample.rate);
        }
        if ack.round_start {
            self.round += 1;
            return self.on_round(ack.now, mss, bounded);
        }
        if self.switches.early && !bounded && self.rtt_has_risen() { self.window(mss) } else { None }
    }

    fn on_round(&mut self, now: Time, mss: u32, bounded: bool) -> Option<u64> {
        if self.switches.windowed {
            let oldest = self.round.saturating_sub(self.switches.rate_rounds);
            while self.rates.len() > 1 && self.rates.front().is_some_and(|(round, _)| *round < oldest) {
                self.rates.pop_front();
            }
            match self.draining {
                Some(drain) if self.round >= drain.clean && now >= drain.until => {
                    self.draining = None;
                    self.min_rtt = drain.least.or(self.min_rtt.map(|(min, _)| min)).map(|min| (min, now));
                }
                None if bounded
                    && self.min_rtt.is_some_and(|(_, at)| now.since(at) > self.switches.rtt_window) =>
                {
                    self.draining =
                        Some(Drain { until: now + DRAIN.0, clean: self.round + DRAIN.1, least: None });
                }
                _ => {}
            }
        }
        if !bounded {
            return if self.switches.early && self.rate_has_settled() { self.window(mss) } else { None };
        }
        if self.switches.track && self.draining.is_none() { self.window(mss) } else { None }
    }

    fn rate_has_settled(&mut self) -> bool {
        let bandwidth = self.bandwidth();
        if bandwidth.0 as f64 >= self.full.0.0 as f64 * FULL_GAIN.0 {
            self.full = (bandwidth, 0);
        } else {
            self.full.1 += 1;
        }
        self.full.1 >= FULL_GAIN.1
    }

    /// Before [`RISEN_SAMPLES`] there are zeros among them, so nothing has risen.
    fn rtt_has_risen(&self) -> bool {
        let Some((min, _)) = self.min_rtt else { return false };
        let threshold = min + (min / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        self.recent.iter().all(|rtt| *rtt >= threshold)
    }

    fn bandwidth(&self) -> Rate {
        self.rates.front().map_or(Rate(0), |(_, rate)| *rate)
    }

    /// Bandwidth times smallest RTT, plus the headroom when tracking; `None` if silent or nothing is measured. Without
    /// windowed filters the rates before it no longer count after it, as in the paper.
    pub fn window(&mut self, mss: u32) -> Option<u64> {
        if self.silent() {
            return None;
        }
        let (min, _) = self.min_rtt?;
        let bandwidth = self.bandwidth();
        if bandwidth.0 == 0 {
            return None;
        }
        if !self.switches.windowed {
            self.rates.clear();
        }
        Some(bandwidth.bytes_in(min).0 + self.headroom(mss, min))
    }

    /// Bytes to keep queued when tracking. Many flows' headrooms add up: once the queue they make lasts longer than a quarter
    /// of the smallest RTT (what the paper lets a probe add) each gives way in proportion. All see the same queue, so shares
    /// stay equal, and it grows only with the square root of their number.
    fn headroom(&self, mss: u32, min: Duration) -> u64 {
        if !self.switches.track {
            return 0;
        }
        let most = self.switches.headroom * mss as u64;
        let queue = nanos(self.recent.iter().min().map_or(Duration::ZERO, |least| least.saturating_sub(min)));
        let patience = nanos(min) / 4;
        if queue > patience { (most as u128 * patience as u128 / queue as u128) as u64 } else { most }
    }

    /// `snd_swnd`; while draining no more than half of what the path holds without a queue, but two segments.
    #[inline]
    pub fn bound(&self, snd_swnd: u64, mss: u32) -> u64 {
        match (self.draining, self.min_rtt) {
            (Some(_), Some((min, _))) => {
                snd_swnd.min(self.bandwidth().bytes_in(min).0 / 2).max(2 * mss as u64)
            }
            _ => snd_swnd,
        }
    }

    /// The retransmission timer fired: what was being drained is gone.
    pub fn on_timeout(&mut self) {
        self.draining = None;
    }

    /// The window over the smallest RTT; twice over the last RTT while slow start still searches.
    pub fn pacing_rate(&self, window: Bytes, bounded: bool) -> Option<Rate> {
        if !self.switches.pacing {
            return None;
        }
        let (min, _) = self.min_rtt?;
        if bounded {
            return Rate::over(window, min);
        }
        Rate::over(Bytes(window.0 * 2), if nanos(self.last_rtt) > 0 { self.last_rtt } else { min })
    }

    /// Shows bandwidth (bit/s) and smallest RTT (s), if it has them.
    pub fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        if self.silent() {
            return;
        }
        probe("bandwidth", self.bandwidth().0 as f64);
        if let Some((min, _)) = self.min_rtt {
            probe("min_rtt", min.as_secs_f64());
        }
    }
}
