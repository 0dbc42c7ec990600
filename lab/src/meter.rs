//! What is measured of a TCP sender from its five events: nothing is outstanding, an RTT sample, a window that a router wrote,
//! `una` advances, the end. Our own TCP and a kernel connection that is only observed feed the same meter, so their numbers mean
//! the same.

use crate::line::Written;
use crate::outcome::{Distribution, FlowSummary};
use narrows_core::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A gap in progress that counts as a stall is longer than this, and than four smallest RTTs.
const STALL: Duration = Duration::from_millis(250);

/// RTTs, stalls and the completion of one sender. Positions are stream offsets: byte 0 is the first byte of data.
pub struct Meter {
    /// Bytes it has to send, if that is known.
    size: Option<u64>,
    una: u64,
    /// When `una` last advanced, or data became outstanding.
    progress: Time,
    finished: Option<Time>,
    rtts: Distribution,
    min_rtt: Duration,
    stall_time: Duration,
    stalls: u64,
    /// Windows by the line whose router wrote them, and how long they then took to the sender.
    written: BTreeMap<usize, u64>,
    notice: Distribution,
}

impl Meter {
    /// A sender that starts at `start` and has `size` bytes to send, or no end.
    pub fn new(start: Time, size: Option<u64>) -> Meter {
        Meter {
            size,
            una: 0,
            progress: start,
            finished: None,
            rtts: Distribution::default(),
            min_rtt: Duration::MAX,
            stall_time: Duration::ZERO,
            stalls: 0,
            written: BTreeMap::new(),
            notice: Distribution::default(),
        }
    }

    /// Nothing is outstanding: a gap begins at the earliest with what leaves now.
    #[inline]
    pub fn idle(&mut self, now: Time) {
        self.progress = now;
    }

    /// An RTT was measured. Comes before [`Meter::advance`] if one ACK does both.
    #[inline]
    pub fn rtt(&mut self, sample: Duration) {
        self.rtts.record(sample);
        self.min_rtt = self.min_rtt.min(sample);
    }

    /// An ACK came whose window a router had written.
    pub fn written(&mut self, now: Time, window: Written) {
        *self.written.entry(window.line).or_default() += 1;
        self.notice.record(now.since(window.at));
    }

    /// Everything before `una` is acknowledged; nothing happens if that is not new.
    #[inline]
    pub fn advance(&mut self, now: Time, una: u64) {
        if una > self.una {
            self.una = una;
            let gap = now.since(std::mem::replace(&mut self.progress, now));
            self.count_gap(gap);
            self.note_finish(now);
        }
    }

    /// The sender will send `size` bytes and no more.
    pub fn limit(&mut self, now: Time, size: u64) {
        self.size = Some(self.size.map_or(size, |before| before.min(size)));
        self.note_finish(now);
    }

    /// The run ends; `outstanding` says whether data is. A gap in progress counts.
    pub fn end(&mut self, now: Time, outstanding: bool) {
        if outstanding && self.finished.is_none() {
            self.count_gap(now.since(self.progress));
        }
    }

    /// When the last of `size` bytes was acknowledged.
    #[inline]
    pub fn finished(&self) -> Option<Time> {
        self.finished
    }

    /// Writes what was measured into a summary: `completed`, the RTTs, the stalls and the windows that routers wrote; `lines` are
    /// the lines' names.
    pub fn fill(&self, summary: &mut FlowSummary, lines: &[String]) {
        summary.windows_from = self.written.iter().map(|(line, n)| (lines[*line].clone(), *n)).collect();
        summary.window_notice = self.notice.quantiles();
        summary.completed = self.finished.is_some();
        summary.rtt = self.rtts.quantiles();
        summary.stall_time_s = self.stall_time.as_secs_f64();
        summary.stalls = self.stalls;
    }

    #[inline]
    fn note_finish(&mut self, now: Time) {
        if self.finished.is_none() && self.size.is_some_and(|size| self.una >= size) {
            self.finished = Some(now);
        }
    }

    #[inline]
    fn count_gap(&mut self, gap: Duration) {
        // Without a sample four smallest RTTs are nothing.
        let smallest = if self.min_rtt == Duration::MAX { Duration::ZERO } else { self.min_rtt };
        if gap > STALL && gap > smallest * 4 {
            self.stall_time += gap;
            self.stalls += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(meter: &Meter) -> FlowSummary {
        let mut summary = FlowSummary::default();
        meter.fill(&mut summary, &["a>b".into(), "b>a".into()]);
        summary
    }

    #[test]
    fn windows_that_routers_wrote_are_told_apart_by_line() {
        let mut meter = Meter::new(Time::ZERO, None);
        for (line, at) in [(1, 90), (0, 80), (1, 70)] {
            meter.written(Time::from_millis(100), Written { line, at: Time::from_millis(at) });
        }
        let s = summary(&meter);
        assert_eq!(s.windows_from, [("a>b".into(), 1), ("b>a".into(), 2)].into());
        assert_eq!(s.window_notice.count, 3);
        assert!((s.window_notice.p50 - 0.02).abs() < 1e-4, "{:?}", s.window_notice);
    }

    #[test]
    fn a_gap_is_a_stall_if_it_exceeds_250_ms_and_four_smallest_rtts() {
        let (ms, rtt) = (Time::from_millis, Duration::from_millis);
        let mut meter = Meter::new(ms(0), None);
        meter.advance(ms(250), 1000);
        assert_eq!(summary(&meter).stalls, 0, "not longer than 250 ms");
        meter.advance(ms(501), 2000);
        assert_eq!((summary(&meter).stalls, summary(&meter).stall_time_s), (1, 0.251));
        meter.rtt(rtt(100));
        meter.rtt(rtt(300));
        meter.advance(ms(901), 3000);
        assert_eq!(summary(&meter).stalls, 1, "not longer than four RTTs of 100 ms");
        meter.advance(ms(5000), 3000); // acknowledges nothing new
        meter.idle(ms(9000));
        meter.advance(ms(9100), 4000);
        assert_eq!(summary(&meter).stalls, 1, "nothing was outstanding");
        meter.end(ms(9600), false);
        assert_eq!(summary(&meter).stalls, 1);
        meter.end(ms(9600), true);
        assert_eq!((summary(&meter).stalls, summary(&meter).stall_time_s), (2, 0.751));
        assert_eq!((summary(&meter).rtt.count, summary(&meter).completed), (2, false));
    }

    #[test]
    fn a_sender_is_finished_when_its_last_byte_is_acknowledged() {
        let ms = Time::from_millis;
        let mut meter = Meter::new(ms(0), Some(3000));
        meter.advance(ms(10), 2999);
        assert_eq!(meter.finished(), None);
        meter.advance(ms(20), 3001); // the FIN, too
        meter.advance(ms(30), 3002);
        meter.end(ms(9000), true);
        assert_eq!((meter.finished(), summary(&meter).completed), (Some(ms(20)), true));
        assert_eq!(summary(&meter).stalls, 0, "what comes after the end is no stall");

        let mut endless = Meter::new(ms(0), None);
        endless.advance(ms(10), 5000);
        endless.limit(ms(11), 6000);
        assert_eq!(endless.finished(), None);
        endless.limit(ms(12), 5000);
        endless.limit(ms(13), 9000);
        assert_eq!(endless.finished(), Some(ms(12)), "it stopped, and all it had sent was acknowledged");
    }
}
