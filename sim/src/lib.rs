//! Narrows in virtual time. A [`Scenario`] and a seed go in, an [`Outcome`] comes out, the same on every machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `flow` | the two ends of a flow, and what is counted at them |
//! | `build` | from a scenario to components |
//!
//! The agenda, the lines and the recorder are every host's: `narrows_lab::{agenda, line, record}`.
//!
//! A packet's way: an endpoint's `transmit` gives it; its flow's way names the lines it takes, in a table made once; each
//! line queues it, transmits it and holds it in its pipe; behind the last line the other end's `receive` takes it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod build;
mod flow;

use flow::{End, Flow};
use narrows_core::packet::{Body, Direction};
use narrows_core::{Datagram, Rate, Time};
use narrows_lab::agenda::Agenda;
use narrows_lab::host::{Seen, Watch};
use narrows_lab::line::{self, Carried, Line, Wish};
use narrows_lab::outcome::{EventKind, Outcome};
use narrows_lab::record::{QueueRecorder, Recorder};
use narrows_lab::scenario::{Refused, Scenario};
use std::collections::VecDeque;
use std::time::Duration;

/// Runs a scenario. The `outcome`'s `given` and `scenario` are left to the caller, who knows where it came from.
pub fn run(scenario: &Scenario, seed: u64, watch: &mut dyn Watch) -> Result<Outcome, Refused> {
    Ok(build::sim(scenario, seed)?.run(watch))
}

/// Something the scenario's clock does, not a component.
enum Cue {
    Start(usize),
    Stop(usize),
    Change { line: usize, rate: Option<Rate>, delay: Option<Duration> },
}

/// Marks the end of a way in the table of ways.
const HERE: u32 = u32::MAX;

/// A scenario, built and ready to run.
pub struct Sim {
    name: String,
    seed: u64,
    now: Time,
    end: Time,
    agenda: Agenda,
    lines: Vec<Line<Datagram>>,
    line_names: Vec<String>,
    /// One per line, if queues are recorded.
    queue_recorders: Option<Vec<QueueRecorder>>,
    flows: Vec<Flow>,
    /// For every flow and direction the lines it takes, one after the other, each list closed by [`HERE`].
    ways: Vec<u32>,
    /// Whether any line holds senders back; mostly none does, and then none need be asked.
    back_pressure: bool,
    /// For every line whose senders are held back while it has no room: which are, in the order in which they came.
    held_back: Vec<VecDeque<(usize, End)>>,
    /// In order of time; the next one is last.
    cues: Vec<(Time, Cue)>,
    /// How often flows are looked at between events, if they are recorded.
    tick: Option<Duration>,
    /// Flows with a size or a stop that are not over; the run ends when the last one is.
    unfinished: usize,
    /// Whether a flow without a size keeps the run going until its end.
    endless: bool,
    /// Whether the watch wants to see packets.
    taps: bool,
    delivered: u64,
    hash: u64,
}

/// The order of slots on the agenda: two per line, two per flow, one for the cues, one for ticks.
impl Sim {
    fn ready_slot(line: usize) -> usize {
        2 * line
    }
    fn arrival_slot(line: usize) -> usize {
        2 * line + 1
    }
    fn flow_slot(&self, flow: usize, end: End) -> usize {
        2 * (self.lines.len() + flow) + (end == End::Sink) as usize
    }
    fn cue_slot(&self) -> usize {
        2 * (self.lines.len() + self.flows.len())
    }
    fn tick_slot(&self) -> usize {
        self.cue_slot() + 1
    }

    /// Runs to the end: the scenario's duration, or when every flow with a size or a stop is over and none is endless.
    pub fn run(mut self, watch: &mut dyn Watch) -> Outcome {
        if let Some((at, _)) = self.cues.last() {
            self.agenda.set(self.cue_slot(), *at);
        }
        if let Some(interval) = self.tick {
            self.agenda.set(self.tick_slot(), Time::ZERO + interval);
        }
        self.taps = watch.wants_packets();
        let flow_slots = 2 * self.lines.len();
        let cue_slot = self.cue_slot();
        let mut events = 0u32;
        loop {
            let (at, slot) = self.agenda.next();
            if at > self.end || (self.unfinished == 0 && !self.endless) {
                if at > self.end {
                    self.now = self.end;
                }
                break;
            }
            self.now = at;
            if slot < flow_slots {
                if slot % 2 == 0 {
                    self.line_ready(slot / 2, watch)
                } else {
                    self.line_arrival(slot / 2, watch)
                }
            } else if slot < cue_slot {
                let i = slot - flow_slots;
                self.agenda.clear(slot);
                self.pump(i / 2, if i.is_multiple_of(2) { End::Source } else { End::Sink }, watch);
            } else if slot == cue_slot {
                self.cue(watch);
            } else if let Some(interval) = self.tick {
                self.tick(interval);
            }
            events = events.wrapping_add(1);
            if events.is_multiple_of(1 << 16) && !watch.progress(self.now, self.end) {
                break;
            }
        }
        self.outcome()
    }

    fn cue(&mut self, watch: &mut dyn Watch) {
        let (_, cue) = self.cues.pop().expect("the cue slot is set only while cues are left");
        match self.cues.last() {
            Some((at, _)) => self.agenda.set(self.cue_slot(), *at),
            None => self.agenda.clear(self.cue_slot()),
        }
        match cue {
            Cue::Start(flow) => {
                self.flows[flow].started = true;
                self.pump(flow, End::Source, watch);
            }
            Cue::Stop(flow) => {
                self.flows[flow].stop(self.now);
                self.pump(flow, End::Source, watch);
            }
            Cue::Change { line, rate, delay } => self.lines[line].change(self.now, rate, delay),
        }
    }

    /// Lets `end` of a flow send what it may, and notes when it wants to be called again.
    #[inline]
    fn pump(&mut self, flow: usize, end: End, watch: &mut dyn Watch) {
        while (!self.back_pressure || self.admits(flow, end))
            && let Some((datagram, way)) = self.flows[flow].transmit(self.now, end)
        {
            self.offer(Carried::new(datagram, way), watch);
        }
        let admitted = !self.back_pressure || self.takes_turn(flow, end);
        if end == End::Source {
            self.flows[flow].record(self.now);
            self.note_over(flow);
        }
        if !admitted {
            return; // it is called when there is room; its timers could do nothing before that
        }
        // Timers re-arm lazily: one that was pushed back moves when it fires.
        if let Some(at) = self.flows[flow].wake_at(end) {
            let slot = self.flow_slot(flow, end);
            if at < self.agenda.at(slot) {
                self.agenda.set(slot, at.max(self.now));
            }
        }
    }

    /// The line into which an end of a flow sends.
    fn first_line(&self, flow: usize, end: End) -> usize {
        let way = self.flows[flow].ways[(end == End::Sink) as usize];
        self.ways[way as usize] as usize
    }

    /// Whether an end of a flow may send now.
    #[inline(never)]
    fn admits(&mut self, flow: usize, end: End) -> bool {
        let line = self.first_line(flow, end);
        self.lines[line].admits(self.now)
    }

    /// A sender that is not admitted waits until it is its turn; one that is has left room for the next. `false` if it waits.
    #[inline(never)]
    fn takes_turn(&mut self, flow: usize, end: End) -> bool {
        let (line, admitted) = (self.first_line(flow, end), self.admits(flow, end));
        if admitted {
            self.let_next_in(line);
        } else if !std::mem::replace(&mut self.flows[flow].held_back[end as usize], true) {
            self.held_back[line].push_back((flow, end));
        }
        admitted
    }

    /// There may be room in the line: the sender that has been held back for longest is called next.
    #[inline(never)]
    fn let_next_in(&mut self, line: usize) {
        if let Some((flow, end)) = self.held_back[line].pop_front() {
            self.flows[flow].held_back[end as usize] = false;
            let slot = self.flow_slot(flow, end);
            self.agenda.set(slot, self.now);
        }
    }

    /// Counts a flow that has just ended, one way or the other.
    #[inline]
    fn note_over(&mut self, i: usize) {
        let flow = &mut self.flows[i];
        if flow.over || !flow.is_over() {
            return;
        }
        flow.over = true;
        self.unfinished -= flow.bounded as usize;
        if let (Some(at), Some(recorder)) = (flow.meter.finished(), &mut flow.recorder) {
            recorder.event(at, EventKind::Finished, 0.0, String::new());
        }
    }

    /// Between events, what is recorded of timers and rates goes on.
    fn tick(&mut self, interval: Duration) {
        for flow in self.flows.iter_mut().filter(|f| f.started && !f.over) {
            flow.tick(self.now);
        }
        self.agenda.set(self.tick_slot(), self.now + interval);
    }

    /// A packet comes to the next line of its way.
    #[inline]
    fn offer(&mut self, packet: Carried<Datagram>, watch: &mut dyn Watch) {
        let i = self.ways[packet.hop as usize] as usize;
        let wish = self.lines[i].offer(self.now, packet);
        self.settle(i, wish, watch);
    }

    #[inline]
    fn line_ready(&mut self, i: usize, watch: &mut dyn Watch) {
        let wish = self.lines[i].ready(self.now);
        if wish.ready.is_none() {
            self.agenda.clear(Self::ready_slot(i));
        }
        self.settle(i, wish, watch);
    }

    /// After a call to a line: does what it asks for, notes what it dropped.
    #[inline]
    fn settle(&mut self, i: usize, wish: Wish, watch: &mut dyn Watch) {
        if self.lines[i].has_dropped() {
            self.drop_packets(i);
        }
        if let Some(at) = wish.ready {
            self.agenda.set(Self::ready_slot(i), at);
        }
        if let Some(at) = wish.arrival {
            self.agenda.set(Self::arrival_slot(i), at);
        }
        if let Some(since) = wish.marked {
            self.note_mark(i, since);
        }
        if wish.left && (self.back_pressure || self.taps) {
            self.left(i, watch);
        }
        if let Some(recorders) = &mut self.queue_recorders {
            recorders[i].look(self.now, &self.lines[i].queue);
        }
    }

    /// A packet has just left line `i`, and somebody minds.
    #[inline(never)]
    fn left(&mut self, i: usize, watch: &mut dyn Watch) {
        self.let_next_in(i);
        if self.taps
            && let Some(datagram) = self.lines[i].newest()
        {
            watch.departs(i, self.now, Seen::Value(datagram));
        }
    }

    /// The packet that has just left line `i` was marked there, where it waited `since`.
    #[cold]
    fn note_mark(&mut self, i: usize, since: Time) {
        let Some(datagram) = self.lines[i].newest() else { return };
        let Some(recorder) = &mut self.flows[datagram.flow.0 as usize].recorder else { return };
        let value = offset(recorder, datagram);
        recorder.event(since, EventKind::Mark, value, self.line_names[i].clone());
    }

    #[cold]
    fn drop_packets(&mut self, i: usize) {
        for (packet, reason) in self.lines[i].dropped() {
            let d = &packet.packet;
            note(&mut self.hash, self.now, d, 1 + reason as u64);
            let flow = &mut self.flows[d.flow.0 as usize];
            if d.direction == Direction::Forward {
                flow.lost += 1;
            }
            let Some(recorder) = &mut flow.recorder else { continue };
            let detail = format!("{} {}", self.line_names[i], reason.name());
            recorder.event(self.now, EventKind::Drop, offset(recorder, d), detail);
        }
    }

    #[inline]
    fn line_arrival(&mut self, i: usize, watch: &mut dyn Watch) {
        let packet = line::arrive(&mut self.lines, i, self.now);
        match self.lines[i].arrival_at() {
            Some(at) => self.agenda.set(Self::arrival_slot(i), at),
            None => self.agenda.clear(Self::arrival_slot(i)),
        }
        let Some(mut packet) = packet else { return };
        if self.taps {
            watch.arrives(i, self.now, Seen::Value(&packet.packet));
        }
        packet.hop += 1;
        if self.ways[packet.hop as usize] != HERE {
            return self.offer(packet, watch);
        }
        self.delivered += 1;
        note(&mut self.hash, self.now, &packet.packet, 0);
        let i = packet.packet.flow.0 as usize;
        let flow = &mut self.flows[i];
        if let Some(window) = packet.written()
            && packet.packet.direction == Direction::Backward
        {
            flow.written(self.now, window);
        }
        let end = flow.receive(self.now, packet.packet);
        self.pump(i, end, watch);
    }

    /// What was seen. Packets still waiting or on their way are neither delivered nor dropped.
    fn outcome(mut self) -> Outcome {
        let now = self.now;
        let mut outcome = Outcome {
            name: self.name,
            host: "sim".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            seed: self.seed,
            ended_at_s: now.as_secs_f64(),
            trace_hash: self.hash,
            delivered_packets: self.delivered,
            ..Outcome::default()
        };
        for flow in &mut self.flows {
            outcome.flows.push(flow.summary(now, &self.line_names));
            if let Some(recorder) = flow.recorder.take() {
                let (series, events, omitted) = recorder.finish(now);
                outcome.series.extend(series);
                outcome.events.extend(events);
                outcome.events_omitted += omitted;
            }
        }
        outcome.events.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let names = self.line_names;
        outcome.queues =
            self.lines.iter_mut().zip(names).map(|(line, name)| line.summary(name, now)).collect();
        let recorders = self.queue_recorders.into_iter().flatten();
        outcome.series.extend(recorders.flat_map(|recorder| recorder.finish(now)));
        outcome
    }
}

/// The number that an event of a packet has.
fn offset(recorder: &Recorder, d: &Datagram) -> f64 {
    match (&d.body, d.direction) {
        (Body::Tcp(s), Direction::Forward) => recorder.offset(s.seq),
        (Body::Tcp(s), Direction::Backward) => recorder.offset(s.ack),
        (Body::Udp(m), _) => m.number as f64,
    }
}

/// Adds an event to the trace hash: a multiply-rotate mix of when, who and what (after FxHash; not meant to be secure).
#[inline]
fn note(hash: &mut u64, now: Time, d: &Datagram, kind: u64) {
    let what = match &d.body {
        Body::Tcp(s) => (s.seq.0 as u64) << 32 | s.ack.0 as u64,
        Body::Udp(m) => m.number,
    };
    let who = (d.flow.0 as u64) << 32
        | (d.size as u64) << 8
        | (d.direction == Direction::Backward) as u64
        | kind << 4;
    for word in [now.as_nanos(), who, what] {
        *hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
