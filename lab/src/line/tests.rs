//! A line whose queue discipline is replaced while packets wait: nothing is lost, made or overtaken.

use super::*;
use crate::parts;
use crate::scenario::Part;
use narrows_core::FlowId;
use narrows_core::ackwin::Look;
use narrows_core::packet::Direction;
use narrows_core::registry::{Settings, Value};
use narrows_core::{Datagram, Rng};

#[derive(Clone, Debug, PartialEq)]
struct Parcel(u64);

impl Packet for Parcel {
    fn size(&self) -> Bytes {
        Bytes(1000)
    }
    fn flow(&self) -> FlowId {
        FlowId(0)
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn mark_ce(&mut self) -> bool {
        false
    }
}

impl Passing for Parcel {
    fn look(&self) -> Option<Look> {
        None
    }
    fn set_window(&mut self, _window: u16) {}
}

fn queue(name: &str, values: &[(&str, Value)]) -> Queue<Parcel> {
    let settings = Settings(values.iter().map(|(k, v)| (k.to_string(), v.clone())).collect());
    parts::queue(&Part { name: name.into(), settings, inner: None }, Rng::new(0, 0)).unwrap()
}

fn fifo(packets: u64) -> Queue<Parcel> {
    queue("fifo", &[("limit", Value::Packets(packets))])
}

/// 1000 bytes each `millis`, not counting the line's own rate.
fn shaper(millis: u64) -> Queue<Parcel> {
    queue("shaper", &[("rate", Value::Rate(Rate(8_000_000 / millis))), ("burst", Value::Bytes(Bytes(1000)))])
}

/// A host of one line: its agenda, and what left and arrived.
struct Host {
    line: Line<Parcel>,
    now: Time,
    offered: u64,
    ready: Option<Time>,
    arrival: Option<Time>,
    left: Vec<(u64, u64)>,
    arrived: Vec<u64>,
    dropped: Vec<u64>,
}

impl Host {
    /// A line on which 1000 bytes take 1 ms, and 5 ms to the other end.
    fn new(queue: Queue<Parcel>) -> Host {
        let line = Line::new(Rate(8_000_000), Duration::from_millis(5), Bytes(1500), queue);
        let (left, arrived, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Host { line, now: Time::ZERO, offered: 0, ready: None, arrival: None, left, arrived, dropped }
    }

    fn settle(&mut self, wish: Wish) {
        self.dropped.extend(self.line.dropped().map(|(p, _)| p.packet.0));
        self.ready = wish.ready.or(self.ready);
        self.arrival = wish.arrival.or(self.arrival);
        if wish.left {
            self.left.push((self.line.newest().unwrap().0, self.now.as_nanos() / 1_000_000));
        }
        let counters = self.line.counters();
        assert_eq!(counters.arrived, self.offered);
        assert_eq!(counters.arrived, counters.departed + counters.dropped() + counters.backlog.packets);
        assert_eq!(counters.departed, counters.pipe + self.arrived.len() as u64);
        assert_eq!(counters.departed_bytes, 1000 * counters.departed);
        assert_eq!(counters.dropped(), self.dropped.len() as u64);
    }

    fn offer(&mut self, packets: u64) {
        for _ in 0..packets {
            self.offered += 1;
            let wish = self.line.offer(self.now, Carried::new(Parcel(self.offered), 0));
            self.settle(wish);
        }
    }

    fn replace(&mut self, queue: Queue<Parcel>) {
        let wish = self.line.replace(self.now, queue);
        self.settle(wish);
    }

    fn run(&mut self, millis: u64) {
        let (until, mut asked) = (Time::from_millis(millis), 0);
        while let Some(at) = self.ready.into_iter().chain(self.arrival).min().filter(|at| *at <= until) {
            self.now = at;
            if self.ready == Some(at) {
                self.ready = None;
                asked += 1;
                assert!(asked <= 20, "asked again and again at {at:?}");
                let wish = self.line.ready(at);
                self.settle(wish);
            } else {
                let packet = arrive(std::slice::from_mut(&mut self.line), 0, at);
                self.arrived.push(packet.unwrap().packet.0);
                self.arrival = self.line.arrival_at();
            }
        }
        self.now = until;
    }
}

#[test]
fn what_waits_in_the_old_discipline_leaves_first_and_at_its_own_pace() {
    let mut host = Host::new(shaper(10));
    host.offer(3);
    host.run(5);
    host.replace(fifo(2));
    host.offer(2);
    host.run(100);
    assert_eq!(host.left, [(1, 0), (2, 10), (3, 20), (4, 21), (5, 22)]);
    assert_eq!(host.arrived, [1, 2, 3, 4, 5]);
}

#[test]
fn several_replacements_in_a_row_lose_nothing_and_each_has_its_own_limit() {
    let mut host = Host::new(fifo(3));
    host.offer(5); // one leaves, three wait, one is dropped
    host.replace(shaper(4));
    host.offer(2);
    host.replace(fifo(1));
    host.offer(2);
    host.replace(fifo(1));
    host.offer(1);
    assert_eq!(host.dropped, [5, 9]);
    assert_eq!(host.line.counters().backlog, Backlog { packets: 7, bytes: Bytes(7000) });
    host.run(100);
    assert_eq!(host.arrived, [1, 2, 3, 4, 6, 7, 8, 10]);
    // The shaper's bucket was full: packet 6 follows 4 at once, 7 four milliseconds later.
    let left: Vec<u64> = host.left.iter().map(|(_, at)| *at).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 8, 9, 10]);
    assert_eq!(host.line.counters().drops_by_reason().collect::<Vec<_>>(), [("full", 2)]);
}

#[test]
fn an_idle_line_takes_the_new_discipline_at_once() {
    let mut host = Host::new(shaper(10));
    host.offer(1);
    host.run(50);
    host.replace(fifo(9));
    assert!(matches!(host.line.queue, Queue::Fifo(_)), "the fast way is open again");
    host.offer(3);
    host.run(100);
    assert_eq!(host.left[1..], [(2, 50), (3, 51), (4, 52)]);
}

#[test]
fn acks_that_are_held_back_come_later_and_in_the_order_of_their_release() {
    let line = || Line::new(Rate(8_000_000), Duration::from_millis(5), Bytes(1500), fifo(9));
    let mut lines = [line(), line()];
    let at = Time::from_millis;
    for number in 1..=3 {
        lines[1].offer(at(0), Carried::new(Parcel(number), 0)); // they arrive after 6, 7 and 8 ms
    }
    let held = |lines: &mut [Line<Parcel>; 2], until: u64, number: u64| {
        let packet = Carried::new(Parcel(number), 0);
        let key = (at(until), lines[1].holds);
        lines[1].holds += 1;
        lines[1].held.insert(key, packet);
    };
    held(&mut lines, 7, 71);
    held(&mut lines, 9, 91);
    held(&mut lines, 9, 92);
    for number in 1..=2 {
        let next = lines[1].ready(at(number)).ready;
        assert!(next.is_some() || number == 2);
    }
    assert_eq!(lines[1].counters().pipe, 6);
    let mut came = Vec::new();
    while let Some(next) = lines[1].arrival_at() {
        let packet = arrive(&mut lines, 1, next);
        came.push((packet.unwrap().packet.0, next.as_nanos() / 1_000_000));
    }
    assert_eq!(came, [(1, 6), (71, 7), (2, 7), (3, 8), (91, 9), (92, 9)]);
}

#[test]
fn the_mean_backlog_is_waiting_times_over_the_time_of_the_run() {
    // Of four at once the first leaves at once and the others after 1, 2 and 3 ms; of five the queue takes no fifth.
    for (millis, mean) in [(10, 6.0 / 10.0), (2, (1.0 + 2.0 + 2.0) / 2.0), (0, 0.0)] {
        let mut host = Host::new(fifo(3));
        host.offer(5);
        host.run(millis);
        assert_eq!(host.dropped, [5]);
        let summary = host.line.summary("a>b".into(), host.now);
        assert!((summary.backlog_mean_packets - mean).abs() < 1e-12, "{millis} ms: {summary:?}");
    }
    // Also in a discipline that has been replaced, and in one that drops at its head after 5 ms in a row.
    let mut host = Host::new(shaper(10));
    host.offer(3);
    host.run(5);
    host.replace(queue("codel", &codel(1, 5)));
    host.offer(50);
    host.run(12);
    let mut area = 0.0;
    for i in 0..12_000u64 {
        // The shaper passes packets at 0, 10 and 20 ms; nothing behind them moves before.
        area += 0.001
            * if i < 5_000 {
                2.0
            } else if i < 10_000 {
                52.0
            } else {
                51.0
            };
    }
    let summary = host.line.summary("a>b".into(), host.now);
    assert!((summary.backlog_mean_packets - area / 12.0).abs() < 1e-9, "{summary:?}");
    (13..=1000).for_each(|ms| host.run(ms));
    assert!(host.dropped.len() > 3, "CoDel dropped none: {:?}", host.dropped);
    let waited = |(number, left): &(u64, u64)| left - if *number <= 3 { 0 } else { 5 };
    let of_left: u64 = host.left.iter().map(waited).sum();
    let summary = host.line.summary("a>b".into(), host.now);
    assert!(summary.backlog_mean_packets * 1000.0 > of_left as f64, "what was dropped has waited, too");
}

fn codel(target: u64, interval: u64) -> Vec<(&'static str, Value)> {
    vec![
        ("limit", Value::Packets(100)),
        ("target", Value::Time(Duration::from_millis(target))),
        ("interval", Value::Time(Duration::from_millis(interval))),
        ("ecn", Value::Flag(false)),
        ("ce_threshold", Value::Time(Duration::ZERO)),
    ]
}

#[test]
fn what_a_discipline_marks_is_counted_as_marked_and_not_as_dropped() {
    let values = |ecn| {
        [
            ("limit", Value::Packets(100)),
            ("min", Value::Packets(1)),
            ("max", Value::Packets(1000)),
            ("rate", Value::Rate(Rate(8_000_000))),
            ("weight", Value::Ratio(1.0)),
            ("max_p", Value::Ratio(1.0)),
            ("gentle", Value::Flag(true)),
            ("wait", Value::Flag(false)),
            ("mean_packet", Value::Bytes(Bytes(1000))),
            ("bytes", Value::Flag(false)),
            ("ecn", Value::Flag(ecn)),
            ("mark_limit", Value::Ratio(1.0)),
            ("adaptive", Value::Flag(false)),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    };
    let summary = |ecn, codepoint| {
        let part = Part { name: "red".into(), settings: Settings(values(ecn)), inner: None };
        let queue = parts::queue::<Datagram>(&part, Rng::new(0, 0)).unwrap();
        let mut line = Line::new(Rate(8_000_000), Duration::ZERO, Bytes(1500), queue);
        let mut offered = 0;
        for ms in 0..2000 {
            let now = Time::from_millis(ms);
            line.ready(now);
            while line.queue.backlog().packets < 50 {
                let message = narrows_core::wire::udp::Message { length: 972, ..Default::default() };
                let mut packet = Datagram::udp(FlowId(0), Direction::Forward, message);
                packet.ecn = codepoint;
                line.offer(now, Carried::new(packet, 0));
                line.dropped().for_each(drop);
                offered += 1;
            }
        }
        let summary = line.summary("a>b".into(), Time::from_millis(2000));
        assert_eq!(offered, summary.departed + summary.drops + line.queue.backlog().packets);
        summary
    };
    // p_b = 49/999 at least: a gap of 1 to 20 packets, 10 on average.
    let capable = summary(true, Ecn::Ect0);
    assert_eq!(capable.drops, 0);
    assert!((150..250).contains(&capable.marks), "{capable:?}");
    let arrived_marked = summary(true, Ecn::Ce);
    assert_eq!((arrived_marked.marks, arrived_marked.drops), (0, 0), "another router marked them");
    for not in [summary(true, Ecn::NotEct), summary(false, Ecn::Ect0)] {
        assert_eq!(not.marks, 0);
        assert!((150..250).contains(&not.drops_by_reason["early"]), "{not:?}");
    }
}
