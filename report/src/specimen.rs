//! Outcomes for tests: a small Reno with one outstanding recovery, a drop-tail queue and a coarse timer, enough to make real
//! staircases of SEQ and ACK with losses, duplicate ACKs, retransmissions and timeouts.

use narrows_core::Time;
use narrows_lab::Outcome;
use narrows_lab::outcome::{Event, EventKind, FlowSummary, Quantiles, QueueSummary, SERIES_POINTS, Series};
use std::collections::{BTreeMap, BTreeSet};

const MSS: u64 = 4300;
const QUEUE: u64 = 30;

/// One flow, `bulk`, of `segments` segments with a window of `window` segments. `name` is the scenario's.
pub fn run(name: &str, controller: &str, window: u64, segments: u64, seed: u64) -> Outcome {
    let mut net = Net::new(window, segments, 14e-3 + seed as f64 * 1e-5);
    // A bandwidth window keeps the second specimen below the queue's limit after its first loss.
    net.bound_after_loss = (controller == "becc").then_some(26.0);
    while net.step() {}
    net.outcome(name, controller, window, seed)
}

#[derive(Clone, Copy)]
enum Moment {
    Arrive(u64),
    Ack(u64),
    Timer(u64),
}

struct Net {
    moments: BTreeMap<(u64, u64), Moment>,
    count: u64,
    now: f64,
    rtt: f64,
    line_free: f64,
    segments: u64,
    window: f64,
    bound_after_loss: Option<f64>,
    bound: f64,
    cwnd: f64,
    ssthresh: f64,
    una: u64,
    next: u64,
    sent_max: u64,
    duplicates: u64,
    recovering: bool,
    timer: u64,
    received: BTreeSet<u64>,
    expected: u64,
    series: Vec<Series>,
    events: Vec<Event>,
    sent: u64,
    drops: u64,
}

impl Net {
    fn new(window: u64, segments: u64, rtt: f64) -> Net {
        let series =
            [("seq_sent", "B"), ("ack_received", "B"), ("cwnd", "B"), ("ssthresh", "B"), ("rtt", "s")];
        let mut series: Vec<Series> =
            series.iter().map(|(q, unit)| Series::new("bulk", q, unit, SERIES_POINTS)).collect();
        series.push(Series::new("r1>r2", "backlog", "B", SERIES_POINTS));
        let mut net = Net {
            moments: BTreeMap::new(),
            count: 0,
            now: 0.0,
            rtt,
            line_free: 0.0,
            segments,
            window: window as f64,
            bound_after_loss: None,
            bound: f64::INFINITY,
            cwnd: 1.0,
            ssthresh: 1e9,
            una: 0,
            next: 0,
            sent_max: 0,
            duplicates: 0,
            recovering: false,
            timer: 0,
            received: BTreeSet::new(),
            expected: 0,
            series,
            events: Vec::new(),
            sent: 0,
            drops: 0,
        };
        net.happened(EventKind::Established, 0.0);
        net.restart_timer();
        net.send();
        net
    }

    fn at(&mut self, time: f64, moment: Moment) {
        self.count += 1;
        self.moments.insert(((time * 1e9) as u64, self.count), moment);
    }

    fn note(&mut self, series: usize, value: f64) {
        self.series[series].push(Time::from_secs_f64(self.now), value);
    }

    fn happened(&mut self, kind: EventKind, value: f64) {
        let detail = if kind == EventKind::Drop { "r1>r2 full".into() } else { String::new() };
        self.events.push(Event { time_s: self.now, flow: "bulk".into(), kind, value, detail });
    }

    fn restart_timer(&mut self) {
        self.timer += 1;
        self.at(self.now + 1.3, Moment::Timer(self.timer));
    }

    fn step(&mut self) -> bool {
        let Some(((nanos, _), moment)) = self.moments.pop_first() else { return false };
        self.now = nanos as f64 * 1e-9;
        match moment {
            Moment::Arrive(seq) => {
                self.received.insert(seq);
                while self.received.remove(&self.expected) {
                    self.expected += 1;
                }
                self.at(self.now + self.rtt / 2.0, Moment::Ack(self.expected));
            }
            Moment::Ack(ack) => self.ack(ack),
            Moment::Timer(of) if of == self.timer && self.una < self.segments => {
                self.happened(EventKind::Timeout, (self.una * MSS) as f64);
                (self.ssthresh, self.cwnd) = ((self.cwnd / 2.0).max(2.0), 1.0);
                (self.next, self.duplicates, self.recovering) = (self.una, 0, false);
                self.restart_timer();
                self.send();
            }
            Moment::Timer(_) => {}
        }
        self.una < self.segments
    }

    fn ack(&mut self, ack: u64) {
        self.note(1, (ack * MSS) as f64);
        if ack > self.una {
            self.una = ack;
            self.next = self.next.max(ack);
            self.duplicates = 0;
            if self.recovering {
                (self.recovering, self.cwnd) = (false, self.ssthresh);
            } else {
                self.cwnd += if self.cwnd < self.ssthresh { 1.0 } else { 1.0 / self.cwnd + 0.125 };
            }
            self.restart_timer();
        } else if self.sent_max > ack {
            self.duplicates += 1;
            self.happened(EventKind::DuplicateAck, (ack * MSS) as f64);
            if self.duplicates == 3 {
                self.happened(EventKind::FastRetransmit, (ack * MSS) as f64);
                self.ssthresh = (self.cwnd.min(self.window) / 2.0).max(2.0);
                (self.cwnd, self.recovering) = (self.ssthresh + 3.0, true);
                self.bound = self.bound_after_loss.unwrap_or(self.bound);
                self.transmit(ack);
            } else if self.recovering {
                self.cwnd += 1.0;
            }
        }
        self.note(2, self.cwnd * MSS as f64);
        self.note(3, self.ssthresh.min(300.0) * MSS as f64);
        self.send();
    }

    fn send(&mut self) {
        let window = self.cwnd.min(self.window).min(self.bound) as u64;
        while self.next < self.segments && self.next < self.una + window {
            self.transmit(self.next);
            self.next += 1;
        }
    }

    fn transmit(&mut self, seq: u64) {
        self.note(0, (seq * MSS) as f64);
        self.sent += 1;
        if seq < self.sent_max {
            self.happened(EventKind::Retransmission, (seq * MSS) as f64);
        }
        self.sent_max = self.sent_max.max(seq + 1);
        let service = 8.0 * 4352.0 / 42.8e6;
        let waiting = ((self.line_free - self.now) / service).max(0.0);
        self.note(5, waiting * 4352.0);
        self.note(4, self.rtt + waiting * service);
        if waiting >= QUEUE as f64 {
            self.drops += 1;
            return self.happened(EventKind::Drop, (seq * MSS) as f64);
        }
        self.line_free = self.line_free.max(self.now) + service;
        self.at(self.line_free + self.rtt / 2.0, Moment::Arrive(seq));
    }

    fn outcome(mut self, name: &str, controller: &str, window: u64, seed: u64) -> Outcome {
        self.happened(EventKind::Finished, (self.una * MSS) as f64);
        let count = |kind| self.events.iter().filter(|e| e.kind == kind).count() as u64;
        let retransmissions = count(EventKind::Retransmission);
        let flow = FlowSummary {
            name: "bulk".into(),
            controller: controller.into(),
            goodput_bps: (self.una * MSS * 8) as f64 / self.now,
            delivered_bytes: self.una * MSS,
            finished_at_s: self.now,
            completed: true,
            segments_sent: self.sent,
            retransmissions,
            retransmit_ratio: retransmissions as f64 / self.sent as f64,
            rto_count: count(EventKind::Timeout),
            fast_retransmits: count(EventKind::FastRetransmit),
            lost: self.drops,
            rtt: Quantiles {
                count: 9,
                min: 0.014,
                p05: 0.0142,
                p50: 0.021,
                p95: 0.036,
                p99: 0.038,
                max: 0.038,
                mean: 0.02,
            },
            stall_time_s: 1.2 * count(EventKind::Timeout) as f64,
            stalls: count(EventKind::Timeout),
            ..FlowSummary::default()
        };
        let queue = QueueSummary {
            name: "r1>r2".into(),
            arrived: self.sent,
            departed: self.sent - self.drops,
            departed_bytes: (self.sent - self.drops) * 4352,
            drops: self.drops,
            drops_by_reason: BTreeMap::from([("full".into(), self.drops)]),
            utilisation: 0.61,
            delay: Quantiles { count: 9, p50: 0.007, p95: 0.021, ..Quantiles::default() },
            backlog_max_bytes: QUEUE * 4352,
            ..QueueSummary::default()
        };
        self.series.iter_mut().for_each(Series::finish);
        let given = [
            ("flow.bulk.controller", controller.to_owned()),
            ("flow.bulk.window", format!("{}B", window * MSS)),
        ];
        Outcome {
            name: name.into(),
            host: "sim".into(),
            version: "0.1.0".into(),
            seed,
            given: given.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            scenario: format!(
                "[run]\nname = \"{name}\"\nduration = \"60s\"\n\n[[flow]]\nname = \"bulk\"\ncontroller = \"{controller}\"\nwindow = \"{}B\"\n",
                window * MSS
            ),
            ended_at_s: self.now,
            trace_hash: 0x0123_4567_89ab_cdef ^ (window << 20) ^ seed,
            delivered_packets: self.sent - self.drops,
            flows: vec![flow],
            queues: vec![queue],
            series: self.series,
            events: self.events,
            events_omitted: 0,
            lateness: None,
            notes: Vec::new(),
        }
    }
}
