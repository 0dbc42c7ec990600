//! The emulated network, without its clock and its devices: packets are put in at a port, cross the lines of their way, and
//! come out at another port with the instant at which they are due there.
//!
//! It is the simulator's network driven in pieces. Everything that happens inside happens at its own exact instant, in order,
//! however late the host calls: a transmitter that was free 3 ms ago began then. What the host's lateness costs is only that a
//! packet leaves late; it never becomes bandwidth that was not used.

use crate::frame::Frame;
use narrows_core::ackwin::AckWindow;
use narrows_core::qdisc::DropReason;
use narrows_core::{Bytes, Time};
use narrows_lab::agenda::Agenda;
use narrows_lab::class::Classes;
use narrows_lab::line::{self, Carried, Line, Queue, Wish, Written};
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
    /// Something has happened at a line's queue: what waits may have changed.
    fn waits(&mut self, _line: usize, _now: Time, _queue: &Queue<Frame>) {}
    /// A packet has begun to leave a line where it waited `since` and was marked.
    fn marks(&mut self, _line: usize, _since: Time, _frame: &Frame) {}
    /// A packet is about to come out whose window a router has written.
    fn written(&mut self, _now: Time, _frame: &Frame, _window: Written) {}
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

    /// No packet comes out before this: until then [`Network::advance`] may as well wait, since what happens inside meanwhile
    /// happens at its own instant in any case. A transmitter that becomes free behind packets under way is no reason to wake.
    pub fn due_at(&self) -> Time {
        let out = |line: usize| match self.agenda.at(2 * line + 1) {
            Time::MAX => self.agenda.at(2 * line),
            arrival => arrival,
        };
        (0..self.lines.len()).map(out).min().unwrap_or(Time::MAX)
    }

    /// The lines, for accounts.
    pub fn lines(&self) -> &[Line<Frame>] {
        &self.lines
    }

    /// Packets inside: waiting, or on their way.
    pub fn inside(&self) -> u64 {
        let of = |line: &Line<Frame>| {
            let counters = line.counters();
            counters.backlog.packets + counters.pipe
        };
        self.lines.iter().map(of).sum()
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

    /// The largest packet of a line changes now.
    pub fn set_mtu(&mut self, line: usize, mtu: Bytes) {
        self.lines[line].set_mtu(mtu);
    }

    /// A line's classes change now.
    pub fn set_classes(&mut self, line: usize, classes: Option<Classes>) {
        self.lines[line].set_classes(classes);
    }

    /// What is written into the ACKs of the data that take a line changes now.
    pub fn set_acks(&mut self, line: usize, acks: Option<AckWindow>) {
        self.lines[line].set_acks(acks);
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
            if let Some(since) = wish.marked {
                tap.marks(i, since, frame);
            }
            tap.departs(i, now, frame);
        }
        tap.waits(i, now, &line.queue);
    }

    fn arrival(&mut self, i: usize, tap: &mut dyn Tap) {
        let packet = line::arrive(&mut self.lines, i, self.now);
        match self.lines[i].arrival_at() {
            Some(at) => self.agenda.set(2 * i + 1, at),
            None => self.agenda.clear(2 * i + 1),
        }
        let Some(mut packet) = packet else { return };
        tap.arrives(i, self.now, &packet.packet);
        packet.hop += 1;
        if self.ways[packet.hop as usize] != HERE {
            return self.offer(packet, tap);
        }
        let port = self.ways[packet.hop as usize + 1] as usize;
        if let Some(window) = packet.written() {
            tap.written(self.now, &packet.packet, window);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_core::Rate;
    use narrows_core::units::Bytes;
    use narrows_core::wire::ipv4::Header;
    use narrows_lab::file::parse;
    use narrows_lab::parts;
    use proptest::prelude::*;

    fn frame(number: u16, payload: u16) -> Frame {
        let mut header = Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 253, payload);
        header.identification = number;
        let mut bytes = Vec::new();
        header.encode(&mut bytes).unwrap();
        bytes.resize(bytes.len() + payload as usize, 0);
        Frame::ip(bytes).unwrap()
    }

    /// Two lines in a row, as a scenario describes them.
    fn network(queue: &str) -> Network {
        let text = format!(
            "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
             [[link]]\nfrom = \"a\"\nto = \"r\"\nrate = \"100Mbit/s\"\ndelay = \"1ms\"\n\
             [[link]]\nfrom = \"r\"\nto = \"b\"\nrate = \"10Mbit/s\"\ndelay = \"3ms\"\nqueue = {queue}\n\
             change = [{{ at = \"20ms\", rate = \"5Mbit/s\" }}]\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
        );
        let scenario = parse("two.toml", &text).unwrap();
        let lines = scenario.links.iter().enumerate().map(|(i, link)| {
            let queue = parts::queue(&link.forward.queue, parts::rng(1, parts::Stream::Queue, i)).unwrap();
            Line::new(link.forward.rate, link.forward.delay, Bytes(1500), queue)
        });
        let changes: Vec<_> = scenario.links[1].forward.changes.iter().map(|c| (1, *c)).collect();
        Network::new(lines.collect(), &[Way { lines: vec![0, 1], port: 7 }], &changes)
    }

    /// What came out: when, and which packet; and what was dropped where.
    #[derive(Default, PartialEq, Debug)]
    struct Seen {
        delivered: Vec<(Time, u16)>,
        dropped: Vec<(Time, usize, u16)>,
    }

    fn number(frame: &Frame) -> u16 {
        u16::from_be_bytes([frame.bytes()[4], frame.bytes()[5]])
    }

    impl Tap for Seen {
        fn drops(&mut self, line: usize, now: Time, frame: &Frame, _reason: DropReason) {
            self.dropped.push((now, line, number(frame)));
        }
        fn delivers(&mut self, port: usize, due: Time, frame: Frame) {
            assert_eq!(port, 7);
            self.delivered.push((due, number(&frame)));
        }
    }

    #[test]
    fn a_packet_is_due_after_both_transmissions_and_both_delays() {
        let (mut network, mut seen) = (network("\"fifo:10p\""), Seen::default());
        network.arrive(Time::ZERO, network.way(0), frame(1, 1230), &mut seen);
        network.advance(Time::from_millis(100), &mut seen);
        // 1250 bytes: 0.1 ms at 100 Mbit/s, 1 ms at 10 Mbit/s.
        assert_eq!(seen.delivered, [(Time::from_nanos(5_100_000), 1)]);
    }

    #[test]
    fn nothing_comes_out_before_it_is_due_and_no_transmitter_wakes_the_host() {
        let (mut network, mut seen) = (network("\"fifo:10p\""), Seen::default());
        let way = network.way(0);
        (1..=10).for_each(|n| network.arrive(Time::ZERO, way, frame(n, 1230), &mut seen));
        let mut wakes = 0;
        while network.due_at() < Time::MAX {
            let (due, before) = (network.due_at(), seen.delivered.len());
            network.advance(due - Duration::from_nanos(1), &mut seen);
            assert_eq!(seen.delivered.len(), before);
            network.advance(due, &mut seen);
            wakes += 1;
        }
        assert_eq!((seen.delivered.len(), wakes), (10, 20), "one wake for each packet on each line");
    }

    #[test]
    fn a_reconfigured_line_keeps_what_waits_and_sends_it_at_the_new_rate() {
        let (mut network, mut seen) = (network("\"fifo:10p\""), Seen::default());
        let way = network.way(0);
        (1..=5).for_each(|n| network.arrive(Time::ZERO, way, frame(n, 1230), &mut seen));
        let at = Time::from_millis(2); // the first packet is leaving, four wait
        let queue = parts::queue(&parse_queue("fifo:1p"), parts::rng(1, parts::Stream::Queue, 9));
        network.reconfigure(
            at,
            1,
            Rate(1_000_000),
            Duration::from_millis(3),
            Some(queue.unwrap()),
            &mut seen,
        );
        network.advance(Time::from_millis(100), &mut seen);
        let came: Vec<u16> = seen.delivered.iter().map(|(_, n)| *n).collect();
        assert_eq!(
            (came, seen.dropped.len()),
            (vec![1, 2, 3, 4, 5], 0),
            "in order, none lost, though only one fits"
        );
        let gap = seen.delivered[2].0.since(seen.delivered[1].0);
        assert_eq!(gap, Duration::from_millis(10), "1250 bytes at 1 Mbit/s");
    }

    fn parse_queue(text: &str) -> narrows_lab::scenario::Part {
        let text = format!(
            "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\nqueue = \"{text}\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
        );
        parse("one.toml", &text).unwrap().links[0].forward.queue.clone()
    }

    proptest! {
        /// The host's lateness changes nothing inside: who looks every 100 us and who looks only when packets arrive see the
        /// same packets leave at the same instants, and the same ones dropped.
        #[test]
        fn however_late_the_host_is_the_network_is_the_same(
            arrivals in prop::collection::vec((0u64..2_000_000, 0u16..1400), 1..100),
            queue in prop::sample::select(vec![
                "\"fifo:5p\"",
                "\"delay:2ms\"",
                "{ kind = \"shaper\", rate = \"3Mbit/s\", burst = \"3kB\", inner = \"fifo:8p\" }",
                "{ kind = \"loss\", probability = 0.2, inner = \"fifo:9kB\" }",
            ]),
        ) {
            let run = |step: u64| {
                let (mut network, mut seen) = (network(queue), Seen::default());
                let (mut now, mut looked) = (0, 0);
                for (i, (gap, payload)) in arrivals.iter().enumerate() {
                    now += gap;
                    while looked + step < now {
                        looked += step;
                        network.advance(Time::from_nanos(looked), &mut seen);
                    }
                    network.arrive(Time::from_nanos(now), network.way(0), frame(i as u16, *payload), &mut seen);
                }
                network.advance(Time::from_millis(60_000), &mut seen);
                prop_assert_eq!(seen.delivered.len() + seen.dropped.len(), arrivals.len());
                prop_assert_eq!(network.next_at(), Time::MAX);
                Ok(seen)
            };
            prop_assert_eq!(run(100_000)?, run(u64::MAX / 2)?);
        }
    }
}
