//! What a run yields: the same [`Outcome`] from every host, so that a simulated and a real run lie on one figure.
//!
//! Memory is bounded whatever the length of the run: quantiles are histograms, [`Series`] thin themselves out, and events
//! beyond a budget are counted instead of kept.

use hdrhistogram::Histogram;
use narrows_core::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that was seen of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// What moved the packets: `sim` (virtual time), `wire` (our TCP on real packets) or `linux` (the kernel's).
    pub host: String,
    /// The version of Narrows.
    pub version: String,
    /// The seed all random streams derive from.
    pub seed: u64,
    /// What this run was given in place of the file's own values: sweep point and `--set`, as written (`flow.window` ->
    /// `220kB`).
    pub given: BTreeMap<String, String>,
    /// The resolved scenario as TOML: running it again with the same seed repeats the run.
    pub scenario: String,
    /// When the last event happened, in seconds.
    pub ended_at_s: f64,
    /// Hash over every delivery and drop in order. Equal runs have equal hashes, debug or release, on every machine.
    pub trace_hash: u64,
    /// Packets that reached the end of their path.
    pub delivered_packets: u64,
    /// One per flow, in the scenario's order.
    pub flows: Vec<FlowSummary>,
    /// One per link direction, in the scenario's order: forward, backward.
    pub queues: Vec<QueueSummary>,
    /// What was recorded over time.
    pub series: Vec<Series>,
    /// What happened, in order of time.
    pub events: Vec<Event>,
    /// Events beyond the budget: counted, not kept.
    pub events_omitted: u64,
    /// How late a host in real time did what was due, in seconds; `None` in virtual time.
    #[serde(default)]
    pub lateness: Option<Quantiles>,
    /// What a reader must know of this run before believing it: "no real-time scheduling", "this run was spoilt: ...".
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Outcome {
    /// The series `quantity` of `subject` (a flow's or queue's name).
    pub fn series(&self, subject: &str, quantity: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.subject == subject && s.quantity == quantity)
    }
    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<&FlowSummary> {
        self.flows.iter().find(|f| f.name == name)
    }
}

/// One flow in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// Its congestion controller, or `udp`.
    pub controller: String,
    /// Application bytes that arrived in order, over the time from the flow's start to its end.
    pub goodput_bps: f64,
    /// Application bytes that arrived in order.
    pub delivered_bytes: u64,
    /// When it started, in seconds.
    pub started_at_s: f64,
    /// When its last byte was acknowledged (TCP) or sent (UDP); the end of the run if that came first.
    pub finished_at_s: f64,
    /// Whether all it had to send arrived.
    pub completed: bool,
    /// Data segments (or datagrams) sent, retransmissions included.
    pub segments_sent: u64,
    /// Data segments sent again.
    pub retransmissions: u64,
    /// `retransmissions / segments_sent`.
    pub retransmit_ratio: f64,
    /// Retransmission timeouts.
    pub rto_count: u64,
    /// Entries into fast retransmit.
    pub fast_retransmits: u64,
    /// Reductions on an ECN echo.
    #[serde(default)]
    pub ecn_reductions: u64,
    /// Segments or datagrams lost on the way.
    pub lost: u64,
    /// RTT samples at the 5th, 50th, 95th and 99th percentile, in seconds.
    pub rtt: Quantiles,
    /// Time in which nothing was newly acknowledged although data was outstanding: the sum of all gaps longer than the
    /// larger of 250 ms and four minimum RTTs.
    pub stall_time_s: f64,
    /// How many such gaps.
    pub stalls: u64,
    /// ACKs that came with a window a router had written, by the queue for which it spoke (`from>to`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows_from: BTreeMap<String, u64>,
    /// From a router's writing a window until it reaches the sender, in seconds.
    #[serde(default)]
    pub window_notice: Quantiles,
}

/// One link direction in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSummary {
    /// `from>to`.
    pub name: String,
    /// Packets offered to the queue.
    pub arrived: u64,
    /// Packets that left.
    pub departed: u64,
    /// Bytes that left, at the IP level.
    pub departed_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// `drops / arrived`.
    #[serde(default)]
    pub drop_ratio: f64,
    /// Drops by reason.
    pub drops_by_reason: BTreeMap<String, u64>,
    /// Packets marked congestion experienced.
    pub marks: u64,
    /// `departed_bytes` over what the line could have carried during the run.
    pub utilisation: f64,
    /// Time spent waiting in the queue (transmission not included), in seconds.
    pub delay: Quantiles,
    /// Most bytes that waited at once.
    pub backlog_max_bytes: u64,
    /// ACKs whose windows the router before the line looked at, on their way back.
    pub acks_passed: u64,
    /// Windows it made smaller.
    pub windows_written: u64,
    /// Windows it left alone because it had not seen the connection's SYNs.
    pub windows_unknown: u64,
    /// ACKs it held back.
    pub acks_held: u64,
    /// States of its queue it added to ACKs.
    #[serde(default)]
    pub states_added: u64,
    /// Packets that waited, on average over the time of the run.
    #[serde(default)]
    pub backlog_mean_packets: f64,
    /// The line's classes in order, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassSummary>,
}

/// A class of a line in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Its name.
    pub name: String,
    /// How long a packet within its reservation takes at the most; `None` if nothing was promised.
    pub bound_s: Option<f64>,
    /// Packets that left.
    pub departed: u64,
    /// Their bytes at the IP level.
    pub departed_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Time in the queue and on the transmitter; of the first 64 classes only.
    pub delay: Option<Quantiles>,
    /// The longest of these times.
    pub delay_max_s: f64,
}

/// Quantiles of a distribution, and its extremes. All zero if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // statistics by their usual names
pub struct Quantiles {
    pub count: u64,
    pub min: f64,
    pub p05: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
}

/// Collects durations and gives [`Quantiles`], exact to three digits, in constant memory.
#[derive(Clone, Debug)]
pub struct Distribution(Histogram<u32>);

impl Default for Distribution {
    fn default() -> Self {
        // Three digits in microseconds, growing with what is seen: 4 KiB at rest, 60 KiB for values up to a minute.
        Distribution(Histogram::new(3).expect("3 digits are within 0..=5"))
    }
}

impl Distribution {
    /// Adds a value, in microsecond resolution.
    #[inline]
    pub fn record(&mut self, d: Duration) {
        let micros = (d.as_nanos().min(u64::MAX as u128 / 2) as u64 + 500) / 1000;
        self.0.record(micros).expect("the histogram grows as needed");
    }

    /// Adds `n` zeros.
    pub fn record_zeros(&mut self, n: u64) {
        if n > 0 {
            // One histogram cell counts to 2^32: enough for a day of packets at 50,000 a second.
            self.0.record_n(0, n.min(u32::MAX as u64) as u32).expect("zero is in range");
        }
    }

    /// How many values are at most `d`, to the histogram's precision.
    pub fn up_to(&self, d: Duration) -> u64 {
        self.0.count_between(0, d.as_micros() as u64)
    }

    /// The quantiles so far, in seconds.
    pub fn quantiles(&self) -> Quantiles {
        let h = &self.0;
        if h.is_empty() {
            return Quantiles::default();
        }
        let at = |q| h.value_at_quantile(q) as f64 / 1e6;
        Quantiles {
            count: h.len(),
            min: h.min() as f64 / 1e6,
            p05: at(0.05),
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: h.max() as f64 / 1e6,
            mean: h.mean() / 1e6,
        }
    }
}

/// A quantity over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose: a flow's or a queue's name.
    pub subject: String,
    /// What: `seq_sent`, `ack_received`, `cwnd`, `ssthresh`, `backlog`, ... or a name that the `inspect` of a controller or
    /// a queue discipline shows.
    pub quantity: String,
    /// Of what unit: `B`, `p` (packets), `s`, `bit/s`, or empty.
    pub unit: String,
    /// (seconds, value), in order of time.
    pub points: Vec<(f64, f64)>,
    /// How many recorded values one pair of kept points (the smallest and the largest) stands for; 1 if every value is kept.
    pub stride: u64,
    /// Points it keeps at most.
    #[serde(skip, default = "most_points")]
    limit: usize,
    #[serde(skip)]
    group: Group,
}

/// The values since the last kept pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Group {
    seen: u64,
    low: (f64, f64),
    high: (f64, f64),
}

/// Points a series keeps at most; a screen shows a tenth of it.
pub const SERIES_POINTS: usize = 60_000;

/// Points that all series of a run keep at most together, 16 bytes each: a run of 100 flows, however long, records 100 MB.
pub const RUN_POINTS: usize = 6_000_000;

fn most_points() -> usize {
    SERIES_POINTS
}

/// What each of `series` series of a run may keep: an equal share of [`RUN_POINTS`], but enough to draw.
pub fn points_each(series: usize) -> usize {
    (RUN_POINTS / series.max(1)).clamp(1_000, SERIES_POINTS)
}

impl Series {
    /// An empty series that keeps at most `limit` points.
    pub fn new(subject: &str, quantity: &str, unit: &str, limit: usize) -> Series {
        let (subject, quantity, unit) = (subject.into(), quantity.into(), unit.into());
        Series { subject, quantity, unit, stride: 1, limit, ..Series::default() }
    }

    /// Adds a value. When as many as it may are kept, neighbours are merged: of each group the smallest and the largest value
    /// stay, at their own times, so that spikes survive.
    pub fn push(&mut self, time: Time, value: f64) {
        let point = (time.as_secs_f64(), value);
        if self.stride == 1 {
            self.points.push(point);
        } else {
            let g = &mut self.group;
            if g.seen == 0 || value < g.low.1 {
                g.low = point;
            }
            if g.seen == 0 || value >= g.high.1 {
                g.high = point;
            }
            g.seen += 1;
            if g.seen == self.stride {
                self.keep_group();
            }
        }
        if self.points.len() >= self.limit {
            self.thin();
        }
    }

    /// No more values follow: what is still being gathered is kept.
    pub fn finish(&mut self) {
        if self.group.seen > 0 {
            self.keep_group();
        }
        self.points.shrink_to_fit();
    }

    fn keep_group(&mut self) {
        let Group { low, high, .. } = core::mem::take(&mut self.group);
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        self.points.push(first);
        if second.0 > first.0 {
            self.points.push(second);
        }
    }

    fn thin(&mut self) {
        let mut kept = Vec::with_capacity(self.limit);
        for four in self.points.chunks(4) {
            let low = four.iter().copied().reduce(|a, b| if b.1 < a.1 { b } else { a });
            let high = four.iter().copied().reduce(|a, b| if b.1 >= a.1 { b } else { a });
            if let (Some(low), Some(high)) = (low, high) {
                let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
                kept.push(first);
                if second.0 > first.0 {
                    kept.push(second);
                }
            }
        }
        self.stride = if self.stride == 1 { 4 } else { self.stride * 2 };
        self.points = kept;
    }
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A packet was dropped by a queue; `value` is its first stream offset (TCP) or number (UDP).
    Drop,
    /// A packet came to a queue that marked it, then or as it left; `value` is its first stream offset.
    Mark,
    /// A data segment was sent again; `value` is its first stream offset.
    Retransmission,
    /// A duplicate ACK arrived; `value` is the offset it acknowledges.
    DuplicateAck,
    /// Fast retransmit began; `value` is the first unacknowledged offset.
    FastRetransmit,
    /// The window was reduced on an ECN echo; `value` is the first unacknowledged offset.
    EcnReduction,
    /// The retransmission timer fired; `value` is the first unacknowledged offset.
    Timeout,
    /// The connection was established.
    Established,
    /// All data was acknowledged.
    Finished,
}

impl EventKind {
    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Drop => "drop",
            EventKind::Mark => "mark",
            EventKind::Retransmission => "retransmission",
            EventKind::DuplicateAck => "duplicate_ack",
            EventKind::FastRetransmit => "fast_retransmit",
            EventKind::EcnReduction => "ecn_reduction",
            EventKind::Timeout => "timeout",
            EventKind::Established => "established",
            EventKind::Finished => "finished",
        }
    }
}

/// Something that happened to a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds.
    pub time_s: f64,
    /// To which flow.
    pub flow: String,
    /// What.
    pub kind: EventKind,
    /// Its number: see [`EventKind`].
    pub value: f64,
    /// Where or why, for drops: `from>to full`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_stays_within_its_budget_and_keeps_its_spikes() {
        let mut s = Series::new("f", "cwnd", "B", SERIES_POINTS);
        for i in 0..2_000_000u64 {
            s.push(Time::from_millis(i), if i == 777_777 { 1e9 } else { (i % 1000) as f64 });
        }
        s.finish();
        assert!(s.points.len() <= SERIES_POINTS && s.points.len() > SERIES_POINTS / 4, "{}", s.points.len());
        assert!(s.points.windows(2).all(|w| w[0].0 <= w[1].0), "in order of time");
        assert!(s.points.contains(&(777.777, 1e9)), "the spike survives at its own time");
        assert!(s.points.last().is_some_and(|p| p.0 > 1999.0), "the end is there");
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut d = Distribution::default();
        for ms in 1..=1000 {
            d.record(Duration::from_millis(ms));
        }
        let q = d.quantiles();
        assert_eq!(q.count, 1000);
        for (got, want) in [(q.min, 0.001), (q.p50, 0.5), (q.p95, 0.95), (q.p99, 0.99), (q.max, 1.0)] {
            assert!((got - want).abs() / want < 0.002, "{got} {want}");
        }
    }
}
