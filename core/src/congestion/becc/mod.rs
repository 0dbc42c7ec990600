//! BECC: T. Kugimoto and Y. Amagai, "Congestion Avoidance Algorithm Based on Available Bandwidth Estimation", 1997.
//!
//! The sender measures how fast its data is acknowledged; the most of it times the smallest RTT is what the path holds, and
//! no more than that is sent: `win = min(snd_wnd, snd_cwnd, snd_swnd)`. Slow start and avoidance stay as they are, so BECC is
//! a *decorator* around any controller.
//!
//! ```text
//!   ACK ──> t_acked ──30 ms──> t_maxacked (most), t_msrd_th (smoothed)
//!   4th duplicate ACK: snd_swnd = t_maxacked * t_minrtt / ms_period
//!   every 1.5 s:  UPDATE_START ──(x 1.25)──> UPDATING ──rate rose by 1/8──> UPDATING (x 1.25 again)
//!                      ^                        └──it did not: back to what it was──┐
//!                      └────────────────────────────────────────────────────────────┘
//!                 NOT_UPDATE (after a loss, or while snd_cwnd is the smaller): one period of rest
//! ```
//!
//! Two presets share this code: `becc` is the paper to the letter, its open points named parameters; `becc-modern` turns on
//! what the paper leaves open (sections of its last chapter), each part by a switch of its own, see [`estimate`].
//!
//! Both callouts catch up from `now` at each event: the kernel's do not send anything either, so being lazy changes nothing but
//! what an observer sees meanwhile, who calls `catch_up`.
//!
//! Deviations: the callouts count from the connection's start (a kernel counts from its own); a floor of two segments under
//! the window, since none is stated.

pub mod control;
pub mod estimate;

use super::{Ack, Congestion, Context, Controller, DuplicateAck, Entry, Sent, Signal, Start};
use crate::registry::{Kind, Parameter, Settings, Unfit, positive_time, within};
use crate::rng::Rng;
use crate::time::{Time, nanos};
use crate::units::{Bytes, Rate};
use crate::wire::tcp::RouterStates;
use alloc::boxed::Box;
use control::{ControlBlock, EXPECTED_GAIN, Mode, Reading, UNLIMITED, WINDOW_GAIN};
use core::time::Duration;
use estimate::{Estimator, Switches};

/// The literal reading: eq. (1) as printed with alpha = 0.75, gains by shifts.
pub const LITERAL: Reading = Reading {
    sample_weight: 1 << 14,
    window_gain: WINDOW_GAIN,
    expected_gain: EXPECTED_GAIN,
    expect_from_measured: false,
};

const fn parameter(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Parameter {
    Parameter { name, kind, default, meaning }
}

macro_rules! parameters {
    ($guard:literal, $first:literal, $filters:literal, $samples:literal, $update:literal, $pacing:literal, $phase:literal) => {
        &[
            parameter("trigger", Kind::Count, "4", "duplicate ACKs that set the window (3.4: \"4 dup-ACKs\"; 3 reads it as four equal ACKs)"),
            parameter("ms_period", Kind::Time, "30ms", "period of swnd_timer (3.2: chosen by experience)"),
            parameter("update_period", Kind::Time, "1.5s", "period of swnd_update (3.4)"),
            parameter("alpha", Kind::Ratio, "0.75", "coefficient of eq. (1)"),
            parameter("alpha_weighs", Kind::Word(&["old", "new"]), "old", "what alpha weighs: the old value as printed, or the new sample as the sentence after eq. (1) implies"),
            parameter("window_gain", Kind::Ratio, "1.25", "growth of the window at each update (3.4)"),
            parameter("expected_gain", Kind::Ratio, "1.125", "growth of the rate that is expected of it (3.4)"),
            parameter("expect_from", Kind::Word(&["expectation", "measurement"]), "expectation", "what the next expectation is raised from while the rate keeps rising"),
            parameter("guard", Kind::Flag, $guard, "a loss sets the window again only after all data sent at the previous one is acknowledged (not in the paper)"),
            parameter("first", Kind::Word(&["loss", "delay"]), $first, "the first estimate: at the first loss (paper), or when the RTT begins to rise"),
            parameter("filters", Kind::Word(&["forever", "windowed"]), $filters, "most rate since the last loss and least RTT ever (paper), or of the last rounds and seconds"),
            parameter("rate_rounds", Kind::Count, "10", "round trips the windowed rate filter looks back"),
            parameter("rtt_window", Kind::Time, "10s", "how long a smallest RTT counts (windowed filters); then the queue is drained for 200 ms"),
            parameter("samples", Kind::Word(&["bins", "acks"]), $samples, "rate by bins of ms_period (paper), or a delivery-rate sample per ACK"),
            parameter("update", Kind::Word(&["probe", "track"]), $update, "probe upwards every update_period (paper), or follow bandwidth x RTT + headroom every round"),
            parameter("headroom", Kind::Count, "4", "segments each flow keeps queued when it tracks; equal for all, so that shares become equal"),
            parameter("pacing", Kind::Flag, $pacing, "spread the window over the RTT"),
            parameter("phase", Kind::Word(&["start", "random"]), $phase, "when the first probe comes: one period after the start (paper), or at random within it"),
        ]
    };
}

/// The paper.
pub const ENTRY: Entry = Entry {
    name: "becc",
    summary: "bounds the window by measured bandwidth x smallest RTT (Kugimoto & Amagai 1997), to the letter",
    parameters: parameters!("false", "loss", "forever", "bins", "probe", "false", "start"),
    decorates: Some("reno"),
    build,
};

/// Beyond the paper.
pub const MODERN: Entry = Entry {
    name: "becc-modern",
    summary: "BECC without its first loss: delay-based start, windowed filters, per-ACK rates, guard, pacing, tracking",
    parameters: parameters!("true", "delay", "windowed", "acks", "track", "true", "random"),
    decorates: Some("reno"),
    build,
};

fn build(settings: &Settings, context: Context) -> Result<Box<dyn Controller>, Unfit> {
    let inner = context.inner.expect("a decorator is given what it decorates");
    Ok(Box::new(Becc::new(settings, inner, context.rng)?))
}

/// A bandwidth window around another controller.
pub struct Becc {
    inner: Box<dyn Controller>,
    block: ControlBlock,
    reading: Reading,
    trigger: u32,
    guard: bool,
    period: Duration,
    update_period: Duration,
    random_phase: Option<Rng>,
    next_timer: Time,
    next_update: Time,
    mss: u32,
    /// End of what had been sent when a loss last set the window (`guard`).
    guarded_until: Option<u64>,
    estimator: Estimator,
}

/// A gain as 65536ths above 1.
fn fraction(settings: &Settings, name: &'static str) -> Result<u32, Unfit> {
    within(settings, name, 1.0, 16.0).map(|gain| libm::round((gain - 1.0) * 65_536.0) as u32)
}

impl Becc {
    /// Reads the parameters.
    pub fn new(settings: &Settings, inner: Box<dyn Controller>, rng: Rng) -> Result<Self, Unfit> {
        let period = positive_time(settings, "ms_period")?;
        if period.subsec_nanos() % 1_000_000 != 0 || period > Duration::from_secs(60) {
            return Err(Unfit::new(
                "ms_period",
                "ms_period counts whole milliseconds up to 60s: write for example 30ms",
            ));
        }
        let alpha = within(settings, "alpha", 0.0, 1.0)?;
        let sample_weight = if settings.word("alpha_weighs") == "old" { 1.0 - alpha } else { alpha };
        let trigger = settings.count("trigger");
        if !(1..=1000).contains(&trigger) {
            return Err(Unfit::new("trigger", "trigger counts duplicate ACKs, 1 to 1000: the paper's is 4"));
        }
        Ok(Becc {
            inner,
            block: ControlBlock::new(period.as_millis() as u32),
            reading: Reading {
                sample_weight: libm::round(sample_weight * 65_536.0) as u32,
                window_gain: fraction(settings, "window_gain")?,
                expected_gain: fraction(settings, "expected_gain")?,
                expect_from_measured: settings.word("expect_from") == "measurement",
            },
            trigger: trigger as u32,
            guard: settings.flag("guard"),
            period,
            update_period: positive_time(settings, "update_period")?,
            random_phase: (settings.word("phase") == "random").then_some(rng),
            next_timer: Time::MAX,
            next_update: Time::MAX,
            mss: 1,
            guarded_until: None,
            estimator: Estimator::new(Switches {
                early: settings.word("first") == "delay",
                windowed: settings.word("filters") == "windowed",
                rate_rounds: settings.count("rate_rounds").max(1),
                rtt_window: positive_time(settings, "rtt_window")?,
                per_ack: settings.word("samples") == "acks",
                track: settings.word("update") == "track",
                headroom: settings.count("headroom"),
                pacing: settings.flag("pacing"),
            }),
        })
    }

    /// The paper's variables, as they stand.
    pub fn block(&self) -> &ControlBlock {
        &self.block
    }

    /// Runs the callouts that are due, `swnd_timer` before `swnd_update` where they coincide.
    #[inline]
    fn run_callouts(&mut self, now: Time) {
        self.skip_silence(now);
        while self.next_timer.min(self.next_update) <= now {
            if self.next_timer <= self.next_update {
                let bin = self.block.t_acked;
                self.block.swnd_timer(&self.reading);
                self.estimator.on_bin(bin, self.period);
                self.next_timer += self.period;
            } else {
                if !self.estimator.switches.track {
                    self.block.swnd_update(&self.reading);
                }
                self.next_update += self.update_period;
            }
        }
    }

    /// After a long silence both callouts only repeat themselves: `swnd_timer` has nothing to count, `swnd_update` enlarges and
    /// takes back in turn. Whole pairs of updates are skipped, so that an hour of idling costs no more than a second.
    #[inline]
    fn skip_silence(&mut self, now: Time) {
        let pair = 2 * self.update_period;
        let silent =
            self.block.t_acked == 0 && self.block.t_msrd_th == 0 && self.block.mode != Mode::NotUpdate;
        if !silent || now.since(self.next_update) < 2 * pair {
            return;
        }
        let skipped = (nanos(now.since(self.next_update)) / nanos(pair) - 1) * nanos(pair);
        self.next_update += Duration::from_nanos(skipped);
        let period = nanos(self.period);
        self.next_timer +=
            Duration::from_nanos(nanos(self.next_update.since(self.next_timer)) / period * period);
    }

    fn bounded(&self) -> bool {
        self.block.snd_swnd < UNLIMITED
    }

    /// `tcp_output` runs after every arrival and timer: there the smaller congestion window forbids updates.
    #[inline]
    fn after_event(&mut self) {
        let cwnd = self.inner.congestion_window().0.min(u32::MAX as u64) as u32;
        self.block.bounded_by(cwnd);
    }

    fn set_window(&mut self, bytes: u64) {
        let floor = 2 * self.mss as u64;
        self.block.snd_swnd = bytes.clamp(floor, UNLIMITED as u64) as u32;
    }
}

impl Controller for Becc {
    fn on_start(&mut self, start: &Start) {
        self.mss = start.mss;
        self.next_timer = start.now + self.period;
        let first = match &mut self.random_phase {
            Some(rng) => Duration::from_nanos(1 + rng.below(nanos(self.update_period))),
            None => self.update_period,
        };
        self.next_update = start.now + first;
        self.estimator.on_start(start);
        self.inner.on_start(start);
    }

    fn catch_up(&mut self, now: Time) {
        self.run_callouts(now);
        self.inner.catch_up(now);
    }

    fn on_send(&mut self, sent: &Sent) {
        self.inner.on_send(sent);
        self.after_event();
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        if self.next_timer.min(self.next_update) <= ack.now {
            self.run_callouts(ack.now);
        }
        self.block.acked(ack.acked.0.min(u32::MAX as u64) as u32);
        if let Some(echo) = ack.echo {
            self.block.rtt((echo.as_millis() as u64).min(u32::MAX as u64) as u32);
        }
        // The inner window must be able to grow past the bound, or the bound could never be probed upwards; a stack that
        // grows only while the window limits it would stop there. Twice the bound is enough.
        let bound = self.block.snd_swnd as u64;
        let window_limited = ack.window_limited && self.inner.congestion_window().0 < bound.saturating_mul(2);
        self.inner.on_ack(&Ack { window_limited, ..*ack });
        if let Some(window) = self.estimator.on_ack(ack, self.mss, self.bounded()) {
            self.set_window(window);
            self.block.mode = Mode::NotUpdate;
        }
        self.after_event();
    }

    fn on_duplicate_ack(&mut self, duplicate: &DuplicateAck) {
        self.run_callouts(duplicate.now);
        if let Some(echo) = duplicate.echo {
            self.block.rtt((echo.as_millis() as u64).min(u32::MAX as u64) as u32);
        }
        self.inner.on_duplicate_ack(duplicate);
        let clear = self.guarded_until.is_none_or(|until| duplicate.una > until);
        if duplicate.count == self.trigger && (clear || !self.guard) {
            self.guarded_until = Some(duplicate.max);
            match self.estimator.window(self.mss) {
                Some(window) => {
                    self.set_window(window);
                    (self.block.t_maxacked, self.block.mode) = (0, Mode::NotUpdate);
                }
                None => self.block.loss(2 * self.mss),
            }
        }
        self.after_event();
    }

    fn on_router_states(&mut self, now: Time, states: &RouterStates) {
        self.inner.on_router_states(now, states);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.run_callouts(event.now);
        self.inner.on_congestion(event);
        if event.signal == Signal::Timeout {
            self.estimator.on_timeout();
        }
        self.after_event();
    }

    fn set_congestion_window(&mut self, window: Bytes) {
        self.inner.set_congestion_window(window);
    }
    #[inline]
    fn congestion_window(&self) -> Bytes {
        self.inner.congestion_window()
    }
    fn ssthresh(&self) -> Bytes {
        self.inner.ssthresh()
    }
    #[inline]
    fn window(&self) -> Bytes {
        let bound = Bytes(self.estimator.bound(self.block.snd_swnd as u64, self.mss));
        self.inner.window().min(bound)
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.estimator.pacing_rate(self.window(), self.bounded()).or_else(|| self.inner.pacing_rate())
    }
    fn timestamp_clock(&self) -> Option<Duration> {
        Some(Duration::from_millis(1)) // section 3.3: tcp_now counts milliseconds
    }
    fn wants_rate_samples(&self) -> bool {
        self.estimator.switches.per_ack || self.inner.wants_rate_samples()
    }
    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.inner.inspect(probe);
        if self.bounded() {
            probe("snd_swnd", self.block.snd_swnd as f64);
        }
        probe("t_msrd_th", self.block.t_msrd_th as f64 * 8.0);
        probe("t_maxacked", self.block.t_maxacked as f64);
        probe("t_minrtt", self.block.t_minrtt as f64 * 1e-3);
        probe("mode", self.block.mode as i32 as f64);
        self.estimator.inspect(probe);
    }
}

#[cfg(test)]
mod tests;
