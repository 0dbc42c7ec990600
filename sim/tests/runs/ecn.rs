//! What of ECN can be seen on the lines, and the stack that has it.

use super::{pair, watched};
use narrows_core::packet::{Body, Direction};
use narrows_core::wire::tcp::Flags;
use narrows_core::{Datagram, Ecn, Time};
use narrows_lab::Outcome;
use narrows_lab::host::{Seen, Watch};

#[derive(Default)]
struct Datagrams(Vec<(Time, Datagram)>);

impl Watch for Datagrams {
    fn wants_packets(&self) -> bool {
        true
    }
    fn departs(&mut self, _line: usize, at: Time, packet: Seen<'_>) {
        let Seen::Value(d) = packet else { panic!("the simulator moves values") };
        self.0.push((at, d.clone()));
    }
}

/// 100 packets of 1024 bytes of payload by a stack over 10 Mbit/s and 50 ms each way.
fn flow(stack: &str, queue: &str) -> (Outcome, Vec<(Time, Datagram)>) {
    let link = format!("rate = \"10Mbit/s\"\ndelay = \"50ms\"\nqueue = {queue}");
    let flow = format!("stack = {stack}\nmss = \"1024B\"\nwindow = \"128KiB\"\nsize = \"102400B\"");
    let mut seen = Datagrams::default();
    let o = watched(&pair("duration = \"60s\"", &link, &[&flow]), 1, &mut seen);
    (o, seen.0)
}

fn is_syn(d: &Datagram) -> bool {
    matches!(&d.body, Body::Tcp(s) if s.flags.has(Flags::SYN))
}

#[test]
fn stack_ns2_sends_packets_of_payload_and_40_bytes_two_at_first_and_an_ack_for_each() {
    let (o, seen) = flow("\"ns2\"", "\"fifo:500p\"");
    assert!(o.flows[0].completed && o.flows[0].segments_sent == 100);
    let of = |direction| seen.iter().filter(move |(_, d)| d.direction == direction && !is_syn(d));
    let (data, acks): (Vec<_>, Vec<_>) = of(Direction::Forward).partition(|(_, d)| d.size > 40);
    assert!(data.iter().all(|(_, d)| d.size == 1064) && data.len() == 100);
    assert!(acks.into_iter().chain(of(Direction::Backward)).all(|(_, d)| d.size == 40));
    assert_eq!(of(Direction::Backward).count(), 100, "the FIN comes with the last");
    // Slow start by ACKs: 2, 4, 8, ... per round trip of 100 ms; the handshake takes the first.
    let round = |n: u64| data.iter().filter(|(at, _)| (at.as_nanos() / 1_000_000) / 101 == n).count();
    assert_eq!([1, 2, 3, 4].map(round), [2, 4, 8, 16]);
}

#[test]
fn data_of_a_stack_with_ecn_is_capable_and_nothing_else_is() {
    let (_, seen) = flow("\"ns2\"", "\"fifo:500p\"");
    for (at, d) in &seen {
        let capable = d.size > 60; // SYNs carry 8 bytes of options
        assert_eq!(d.ecn, if capable { Ecn::Ect0 } else { Ecn::NotEct }, "{at:?} {d:?}");
    }
    for stack in ["\"rfc\"", "\"net2\"", "{ name = \"ns2\", ecn = false }"] {
        let (_, seen) = flow(stack, "\"fifo:500p\"");
        assert!(seen.iter().all(|(_, d)| d.ecn == Ecn::NotEct), "{stack}");
    }
}

#[test]
fn stack_ns2_waits_6_s_for_the_answer_to_its_first_packet() {
    let (_, seen) = flow("\"ns2\"", "{ kind = \"loss\", packets = [1], inner = \"fifo:500p\" }");
    let syns: Vec<_> = seen.iter().filter(|(_, d)| is_syn(d) && d.direction == Direction::Forward).collect();
    assert_eq!(syns.iter().map(|(at, _)| at.as_nanos()).collect::<Vec<_>>(), [6_000_000_000], "rtxcur_init_");
}
