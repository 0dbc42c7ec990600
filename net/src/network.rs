//! The emulated network, without its clock and its devices: packets are put in at a port, cross the lines of their way, and
//! come out at another port with the instant at which they are due there.
//!
//! It is the simulator's network driven in pieces. Everything that happens inside happens at its own exact instant, in order,
//! however late the host calls: a transmitter that was free 3 ms ago began then. What the host's lateness costs is only that a
//! packet leaves late; it never becomes bandwidth that was not used.

use crate::frame::Frame;
use narrows_core::Time;
use narrows_core::qdisc::{Backlog, DropReason};
use narrows_lab::agenda::Agenda;
use narrows_lab::line::{Carried, Line, Queue, Wish};
use narrows_lab::outcome::QueueSummary;
use narrows_lab::scenario::Change;
use std::time::Duration;

/// Sees what happens inside.
pub trait Tap {
    /// A packet begins to leave on a line.
    fn departs(&mut self, _line: usize, _now: Time, _frame: &Frame) {}
    /// A packet has come to the end of a line.
    fn arrives(&mut self, _line: usize, _now: Time, _frame: &Frame) {}
    /// A packet was dropped at a line.
    fn drops(&mut self, _line: usize, _now: Time, _frame: &Frame, _reason: DropReason) {}
    /// A line's backlog has changed.
    fn backlog(&mut self, _line: usize, _now: Time, _backlog: Backlog) {}
    /// A packet comes out at a port, due at this instant.
    fn delivers(&mut self, port: usize, due: Time, frame: Frame);
}

/// A way through the network: which lines, and the port behind the last one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Indices of lines, in order; at least one.
    pub lines: Vec<usize>,
    /// The port where it ends.
    pub port: usize,
}

/// Which of the network's ways a packet takes; its index in the order given to [`Network::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayId(u32);

/// In the table of ways: the next entry is a port.
const HERE: u32 = u32::MAX;

/// Lines, and the ways through them.
pub struct Network {
    lines: Vec<Line<Frame>>,
    ways: Vec<u32>,
    starts: Vec<u32>,
    agenda: Agenda,
    /// In order of time; the next one is last.
    changes: Vec<(Time, usize, Change)>,
    /// Nothing happens before this any more.
    now: Time,
}

impl Network {
    /// Idle lines; `changes` says which line changes when.
    pub fn new(lines: Vec<Line<Frame>>, ways: &[Way], changes: &[(usize, Change)]) -> Network {
        let (mut table, mut starts) = (Vec::new(), Vec::new());
        for way in ways {
            assert!(!way.lines.is_empty(), "a way takes at least one line");
            starts.push(table.len() as u32);
            table.extend(way.lines.iter().map(|line| *line as u32));
            table.extend([HERE, way.port as u32]);
        }
        let mut changes: Vec<_> = changes.iter().map(|(line, c)| (Time::ZERO + c.at, *line, *c)).collect();
        changes.reverse();
        changes.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        let mut agenda = Agenda::new(2 * lines.len() + 1);
        if let Some((at, ..)) = changes.last() {
            agenda.set(2 * lines.len(), *at);
        }
        Network { agenda, lines, ways: table, starts, changes, now: Time::ZERO }
    }

    /// The `index`th way.
    pub fn way(&self, index: usize) -> WayId {
        WayId(self.starts[index])
    }

    /// A packet comes in at `now` and takes `way`. What is due before it happens before it.
    pub fn arrive(&mut self, now: Time, way: WayId, frame: Frame, tap: &mut dyn Tap) {
        self.advance(now, tap);
        self.offer(Carried::new(frame, way.0), tap);
    }

    /// Everything happens that is due until `until`, each at its own instant.
    pub fn advance(&mut self, until: Time, tap: &mut dyn Tap) {
        loop {
            let (at, slot) = self.agenda.next();
            if at > until {
                break;
            }
            self.now = at.max(self.now);
            if slot == 2 * self.lines.len() {
                self.change();
            } else if slot.is_multiple_of(2) {
                self.ready(slot / 2, tap);
            } else {
                self.arrival(slot / 2, tap);
            }
        }
        self.now = until.max(self.now);
    }

    /// When [`Network::advance`] next has something to do; `Time::MAX` if never.
    pub fn next_at(&self) -> Time {
        self.agenda.next().0
    }

    /// The lines, for accounts.
    pub fn lines(&self) -> &[Line<Frame>] {
        &self.lines
    }

    /// Rate, delay or queue of a line change now. What waits in the old queue leaves first, in its old way.
    pub fn reconfigure(
        &mut self,
        now: Time,
        line: usize,
        rate: narrows_core::Rate,
        delay: Duration,
        queue: Option<Queue<Frame>>,
        tap: &mut dyn Tap,
    ) {
        self.advance(now, tap);
        self.lines[line].change(self.now, Some(rate), Some(delay));
        if let Some(queue) = queue {
            let wish = self.lines[line].replace(self.now, queue);
            self.settle(line, wish, tap);
        }
    }

    /// Each line in numbers, under these names.
    pub fn summaries(&mut self, names: &[String], now: Time) -> Vec<QueueSummary> {
        self.lines.iter_mut().zip(names).map(|(line, name)| line.summary(name.clone(), now)).collect()
    }

    fn offer(&mut self, packet: Carried<Frame>, tap: &mut dyn Tap) {
        let line = self.ways[packet.hop as usize] as usize;
        let wish = self.lines[line].offer(self.now, packet);
        self.settle(line, wish, tap);
    }

    fn ready(&mut self, line: usize, tap: &mut dyn Tap) {
        let wish = self.lines[line].ready(self.now);
        if wish.ready.is_none() {
            self.agenda.clear(2 * line);
        }
        self.settle(line, wish, tap);
    }

    fn settle(&mut self, i: usize, wish: Wish, tap: &mut dyn Tap) {
        let (now, line) = (self.now, &mut self.lines[i]);
        for (packet, reason) in line.dropped() {
            tap.drops(i, now, &packet.packet, reason);
        }
        if let Some(at) = wish.ready {
            self.agenda.set(2 * i, at);
        }
        if let Some(at) = wish.arrival {
            self.agenda.set(2 * i + 1, at);
        }
        if wish.left
            && let Some(frame) = line.newest()
        {
            tap.departs(i, now, frame);
        }
        tap.backlog(i, now, line.queue.backlog());
    }

    fn arrival(&mut self, i: usize, tap: &mut dyn Tap) {
        let (mut packet, next) = self.lines[i].arrive();
        match next {
            Some(at) => self.agenda.set(2 * i + 1, at),
            None => self.agenda.clear(2 * i + 1),
        }
        tap.arrives(i, self.now, &packet.packet);
        packet.hop += 1;
        if self.ways[packet.hop as usize] != HERE {
            return self.offer(packet, tap);
        }
        let port = self.ways[packet.hop as usize + 1] as usize;
        tap.delivers(port, self.now, packet.packet);
    }

    fn change(&mut self) {
        let (_, line, change) = self.changes.pop().expect("the slot is set only while changes are left");
        self.lines[line].change(self.now, change.rate, change.delay);
        match self.changes.last() {
            Some((at, ..)) => self.agenda.set(2 * self.lines.len(), *at),
            None => self.agenda.clear(2 * self.lines.len()),
        }
    }
}
