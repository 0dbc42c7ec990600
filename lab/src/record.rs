//! What is written down of one flow over time, if the scenario asks for it. A host tells what its source sends and what can be
//! seen of it: of our own TCP, or of a kernel connection by its packets and the kernel's word. And what is written down of one
//! queue: [`QueueRecorder`].

mod queue;

pub use queue::QueueRecorder;

use crate::outcome::{Event, EventKind, Series, points_each};
use narrows_core::Time;
use narrows_core::transport::tcp::stream::Stored;
use narrows_core::transport::tcp::{Counters, State, Tcp};
use narrows_core::wire::tcp::Seq;
use std::time::Duration;

/// Events kept per run, an equal share for each flow; more are counted. About 100 bytes each.
const EVENTS: usize = 1_000_000;
/// The share of one flow is at most this: a figure of more events than pixels shows nothing more.
const EVENTS_OF_A_FLOW: usize = 50_000;
/// Series of a flow: seven of its own, and what controllers show (BECC the most: eight).
const SERIES: usize = 15;

/// Bytes per interval, as a rate.
struct Bins {
    interval: Duration,
    end: Time,
    bytes: u64,
    series: Series,
}

impl Bins {
    fn new(name: &str, quantity: &str, interval: Duration, points: usize) -> Bins {
        Bins {
            interval,
            end: Time::ZERO + interval,
            bytes: 0,
            series: Series::new(name, quantity, "bit/s", points),
        }
    }

    fn add(&mut self, now: Time, bytes: u64) {
        while now >= self.end {
            // The bin's value stands at its middle.
            let rate = self.bytes as f64 * 8.0 / self.interval.as_secs_f64();
            self.series.push(self.end - self.interval / 2, rate);
            self.bytes = 0;
            self.end += self.interval;
        }
        self.bytes += bytes;
    }
}

/// What is seen of a source at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// The handshake is over.
    pub established: bool,
    /// Stream offset up to which everything is acknowledged; it never goes back.
    pub una: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight: u64,
    /// Bytes beyond `una` that the receiver allows, or a router on the way.
    pub window: u64,
    /// So far; those that a host cannot know stay 0.
    pub counters: Counters,
}

/// What an algorithm shows of itself, by name, each with its last value: only changes are kept.
struct Shown {
    subject: String,
    unit_of: fn(&str) -> &'static str,
    points: usize,
    series: Vec<(&'static str, f64, Series)>,
}

impl Shown {
    fn new(subject: &str, unit_of: fn(&str) -> &'static str, points: usize) -> Shown {
        Shown { subject: subject.into(), unit_of, points, series: Vec::new() }
    }

    fn look(&mut self, now: Time, inspect: impl FnOnce(&mut dyn FnMut(&'static str, f64))) {
        let Shown { subject, unit_of, points, series: shown } = self;
        inspect(&mut |name, value| {
            let i = shown.iter().position(|(n, ..)| *n == name).unwrap_or_else(|| {
                shown.push((name, f64::NAN, Series::new(subject, name, unit_of(name), *points)));
                shown.len() - 1
            });
            let (_, last, series) = &mut shown[i];
            if value != *last {
                *last = value;
                series.push(now, value);
            }
        });
    }

    fn finish(self, now: Time) -> impl Iterator<Item = Series> {
        self.series.into_iter().map(move |(_, last, series)| held_until(now, last, series))
    }
}

/// Adds a value that holds until the next, if it is another.
fn push_change(series: &mut Series, now: Time, value: f64) {
    if series.points.last().is_none_or(|p| p.1 != value) {
        series.push(now, value);
    }
}

/// The last value holds until the end.
fn held_until(end: Time, last: f64, mut series: Series) -> Series {
    // In real time something may still have happened after the end was seen.
    if series.points.last().is_none_or(|p| p.0 <= end.as_secs_f64()) {
        series.push(end, last);
    }
    series.finish();
    series
}

/// Series and events of one flow's source.
pub struct Recorder {
    flow: String,
    seq_sent: Series,
    ack_received: Series,
    in_flight: Series,
    window: Series,
    /// The line whose router wrote the last window, by its number, which is that of its queue in the outcome.
    window_from: Series,
    rates: [Bins; 2],
    /// What the controller shows.
    shown: Shown,
    /// Sequence number of stream offset 0, from the first segment sent (the SYN is one before it).
    first: Option<Seq>,
    max: u64,
    una: u64,
    counters: Counters,
    established: bool,
    events: Vec<Event>,
    /// How many events are kept.
    share: usize,
    omitted: u64,
}

/// The unit of what a controller's `inspect` shows.
fn unit_of(quantity: &str) -> &'static str {
    match quantity {
        "t_msrd_th" | "bandwidth" | "pacing_rate" => "bit/s",
        "t_minrtt" | "min_rtt" | "srtt" => "s",
        "mode" => "",
        _ => "B",
    }
}

impl Recorder {
    /// Nothing recorded yet of one of `flows` flows; rates are averaged over `interval`.
    pub fn new(flow: &str, flows: usize, interval: Duration) -> Recorder {
        let points = points_each(SERIES * flows);
        let series = |quantity, unit| Series::new(flow, quantity, unit, points);
        let rate = |quantity| Bins::new(flow, quantity, interval, points);
        Recorder {
            flow: flow.to_string(),
            seq_sent: series("seq_sent", "B"),
            ack_received: series("ack_received", "B"),
            in_flight: series("in_flight", "B"),
            window: series("window", "B"),
            window_from: series("window_from", ""),
            rates: [rate("send_rate"), rate("ack_rate")],
            shown: Shown::new(flow, unit_of, points),
            first: None,
            max: 0,
            una: 0,
            counters: Counters::default(),
            established: false,
            events: Vec::new(),
            share: (EVENTS / flows).clamp(1, EVENTS_OF_A_FLOW),
            omitted: 0,
        }
    }

    /// Notes an event.
    pub fn event(&mut self, now: Time, kind: EventKind, value: f64, detail: String) {
        if self.events.len() == self.share {
            self.omitted += 1;
            return;
        }
        self.events.push(Event { time_s: now.as_secs_f64(), flow: self.flow.clone(), kind, value, detail });
    }

    /// The stream offset of a sequence number.
    pub fn offset(&self, seq: Seq) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        // Within half the number space of what was sent last.
        let expected = first.plus(self.max as u32);
        (self.max as i64 + seq.ahead_of(expected) as i64) as f64
    }

    /// The source sends a segment with `len` bytes of data from `seq` on. The first one is its SYN.
    pub fn sent(&mut self, now: Time, seq: Seq, len: u64) {
        if self.first.is_none() {
            self.first = Some(seq.plus(1));
            return;
        }
        if len == 0 {
            return;
        }
        let at = self.offset(seq);
        self.seq_sent.push(now, at + len as f64);
        self.rates[0].add(now, len);
        if (at as u64) < self.max {
            self.event(now, EventKind::Retransmission, at, String::new());
        }
        self.max = self.max.max(at as u64 + len);
    }

    /// An ACK has come whose window the router before a line has written.
    pub fn written(&mut self, now: Time, line: usize) {
        push_change(&mut self.window_from, now, line as f64);
    }

    /// Something has happened at our own TCP: notes what has changed.
    pub fn look_at<P: Stored>(&mut self, now: Time, source: &Tcp<P>) {
        let opening = matches!(source.state(), State::SynSent | State::Listen | State::SynReceived);
        let sight = Sight {
            established: !opening,
            una: source.una(),
            in_flight: source.in_flight(),
            window: source.peer_window().0,
            counters: *source.counters(),
        };
        self.look(now, &sight, |probe| source.controller().inspect(probe));
    }

    /// Something has happened at the source, whatever it is: notes what has changed. `inspect` shows what its congestion
    /// control has to show, by name.
    pub fn look(
        &mut self,
        now: Time,
        sight: &Sight,
        inspect: impl FnOnce(&mut dyn FnMut(&'static str, f64)),
    ) {
        let Sight { established, una, in_flight, window, counters: after } = *sight;
        let before = std::mem::replace(&mut self.counters, after);
        if after.timeouts > before.timeouts {
            self.event(now, EventKind::Timeout, una as f64, String::new()); // of a SYN, too
        }
        if !self.established {
            if !established {
                return;
            }
            self.established = true;
            self.event(now, EventKind::Established, 0.0, String::new());
        }
        if after.duplicate_acks > before.duplicate_acks {
            self.event(now, EventKind::DuplicateAck, una as f64, String::new());
            self.ack_received.push(now, una as f64);
        }
        if after.fast_retransmits > before.fast_retransmits {
            self.event(now, EventKind::FastRetransmit, una as f64, String::new());
        }
        if after.ecn_reductions > before.ecn_reductions {
            self.event(now, EventKind::EcnReduction, una as f64, String::new());
        }
        if una > self.una || self.ack_received.points.is_empty() {
            self.ack_received.push(now, una as f64);
            self.rates[1].add(now, una - self.una);
            self.una = una;
        }
        for (series, value) in [(&mut self.in_flight, in_flight), (&mut self.window, window)] {
            push_change(series, now, value as f64);
        }
        self.shown.look(now, inspect);
    }

    /// The flow ends: hands out what was recorded.
    pub fn finish(mut self, now: Time) -> (Vec<Series>, Vec<Event>, u64) {
        for bins in &mut self.rates {
            bins.add(now, 0);
        }
        let [send, ack] = self.rates;
        let mut all =
            vec![self.seq_sent, self.ack_received, self.in_flight, self.window, send.series, ack.series];
        if !self.window_from.points.is_empty() {
            all.push(self.window_from);
        }
        all.iter_mut().for_each(Series::finish);
        all.extend(self.shown.finish(now));
        (all, self.events, self.omitted)
    }
}
