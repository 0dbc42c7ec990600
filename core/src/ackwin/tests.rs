//! A router by hand: what comes by, and what it says.

use super::*;
use crate::packet::{Body, Datagram, Direction, Ecn};
use crate::registry::{Settings, Value};
use crate::units::Bytes;
use crate::wire::tcp::{Length, Options, Segment};
use crate::{FlowId, Packet};
use alloc::string::ToString;

const MSS: u32 = 1000;

/// A router with room for 32 packets.
struct Router {
    acks: AckWindow,
    now: Time,
    waiting: u64,
    rate: Rate,
}

fn settings(policy: &str, given: &[(&str, Value)]) -> (&'static policy::Entry, Settings) {
    let entry = policy::by_name(policy).unwrap();
    let mut settings = Settings::default();
    for (name, value) in [
        ("rtt", Value::Time(Duration::ZERO)),
        ("alive", Value::Time(Duration::from_secs(1))),
        ("hold", Value::Flag(false)),
        ("connections", Value::Count(64)),
        ("target", Value::Ratio(0.5)),
        ("growth", Value::Ratio(1.0)),
        ("report", Value::Flag(false)),
        ("load_over", Value::Time(Duration::from_millis(50))),
    ]
    .into_iter()
    .chain(given.iter().cloned())
    {
        settings.0.insert(name.to_string(), value);
    }
    (entry, settings)
}

impl Router {
    fn new(policy: &str, given: &[(&str, Value)]) -> Router {
        let (entry, settings) = settings(policy, given);
        let acks = AckWindow::new(Chosen::new(entry, &settings).unwrap().unwrap(), Room::Packets(32));
        Router { acks, now: Time::from_millis(1), waiting: 0, rate: Rate(10_520_000) }
    }

    fn wait(&mut self, ms: u64) -> &mut Router {
        self.now += Duration::from_millis(ms);
        self
    }

    fn back(&mut self, packet: &mut Datagram) -> Verdict {
        let backlog = Backlog { packets: self.waiting, bytes: Bytes(self.waiting * 1052) };
        self.acks.back(self.now, packet, backlog, None, self.rate)
    }

    /// The handshake of a connection whose sender opens: 50 ms beyond the router, 30 ms before it.
    fn open(&mut self, flow: u32, shifts: [Option<u8>; 2]) {
        let [sender, receiver] = shifts;
        let syn = packet(flow, Direction::Forward, Flags::SYN, 0, options(sender));
        self.acks.onward(self.now, &syn);
        let mut answer = packet(flow, Direction::Backward, Flags::SYN | Flags::ACK, 0, options(receiver));
        assert_eq!(self.wait(50).back(&mut answer), Verdict::default());
        assert_eq!(window(&answer), 60_000, "a SYN's window is never touched");
        let third = packet(flow, Direction::Forward, Flags::ACK, 1, Options::default());
        let now = self.wait(30).now;
        self.acks.onward(now, &third);
    }

    /// An ACK that offers `offered` passes: what it offers then.
    fn ack(&mut self, flow: u32, ack: u32, offered: u16) -> (u16, Verdict) {
        let mut ack = packet(flow, Direction::Backward, Flags::ACK, ack, Options::default());
        let Body::Tcp(segment) = &mut ack.body else { unreachable!() };
        segment.window = offered;
        let verdict = self.back(&mut ack);
        (window(&ack), verdict)
    }
}

fn options(window_scale: Option<u8>) -> Options {
    Options { window_scale, mss: Some(MSS as u16), ..Options::default() }
}

fn packet(flow: u32, direction: Direction, flags: Flags, ack: u32, options: Options) -> Datagram {
    let segment: Segment<Length> =
        Segment { flags, ack: Seq(ack), window: 60_000, options, ..Segment::default() };
    Datagram::tcp(FlowId(flow), direction, Ecn::NotEct, segment)
}

fn window(d: &Datagram) -> u16 {
    let Body::Tcp(s) = &d.body else { unreachable!() };
    s.window
}

#[test]
fn the_least_of_what_was_offered_and_what_can_be_accepted_is_written() {
    let mut r = Router::new("free", &[]);
    r.open(1, [Some(0), Some(0)]);
    r.waiting = 12;
    assert_eq!(r.ack(1, 1000, 60_000), (20_000, Verdict { rewritten: true, hold: None }), "32 - 12 segments");
    assert_eq!(r.ack(1, 1000, 7_000).0, 7_000, "the receiver takes less");
    let counted = r.acks.counters();
    assert_eq!((counted.passed, counted.rewritten, counted.unknown), (2, 1, 0));
}

#[test]
fn the_window_field_is_in_the_receivers_scale_and_only_if_both_have_one() {
    for (shifts, field) in [
        ([Some(3), Some(7)], 157), // 156.25 of 128 bytes
        ([None, Some(7)], 20_000),
        ([Some(3), None], 20_000),
        ([Some(0), Some(14)], 1), // rounded down it would be 16,384
    ] {
        let mut r = Router::new("free", &[]);
        r.open(1, shifts);
        r.waiting = 12;
        assert_eq!(r.ack(1, 1000, 60_000).0, field, "{shifts:?}");
    }
}

#[test]
fn never_less_than_a_segment_whatever_the_scale() {
    for (shift, field) in [(0, 1000), (7, 8), (10, 1)] {
        let mut r = Router::new("free", &[]);
        r.open(1, [Some(1), Some(shift)]);
        r.waiting = 32;
        let (written, _) = r.ack(1, 1000, 60_000);
        assert_eq!(written, field);
        assert!(u32::from(written) << shift >= MSS);
        assert_eq!(r.acks.counters().floored, 1);
    }
}

#[test]
fn connections_whose_syns_were_not_seen_pass_unchanged_and_are_counted() {
    let mut r = Router::new("free", &[]);
    r.waiting = 30;
    assert_eq!(r.ack(1, 1000, 60_000), (60_000, Verdict::default()));
    // Only the answer was seen: the sender's SYN took another way.
    let mut answer = packet(1, Direction::Backward, Flags::SYN | Flags::ACK, 0, options(Some(2)));
    r.back(&mut answer);
    assert_eq!(r.ack(1, 1000, 60_000).0, 60_000);
    assert_eq!(r.acks.counters().unknown, 2);
}

#[test]
fn a_reset_is_not_touched_and_ends_what_is_known() {
    let mut r = Router::new("free", &[]);
    r.open(1, [Some(0), Some(0)]);
    r.waiting = 20;
    let mut reset = packet(1, Direction::Backward, Flags::RST | Flags::ACK, 1, Options::default());
    assert_eq!((r.back(&mut reset), window(&reset)), (Verdict::default(), 60_000));
    assert_eq!(r.ack(1, 1000, 60_000).0, 60_000);
}

#[test]
fn the_handshake_tells_the_round_trip_whoever_opens() {
    // C R = 10.52e6 * 0.080 / 8 / 1052 = 100 segments.
    let mut r = Router::new("bdp_free", &[]);
    r.open(1, [Some(7), Some(7)]);
    assert_eq!(r.ack(1, 1000, 60_000).0, 1032);

    let mut r = Router::new("bdp_free", &[]);
    let mut syn = packet(2, Direction::Backward, Flags::SYN, 0, options(Some(7)));
    r.back(&mut syn);
    let answer = packet(2, Direction::Forward, Flags::SYN | Flags::ACK, 0, options(Some(7)));
    let now = r.wait(30).now;
    r.acks.onward(now, &answer);
    assert_eq!(r.wait(50).ack(2, 1, 60_000).0, 1032);
}

#[test]
fn the_third_packet_may_carry_data() {
    let mut r = Router::new("bdp_free", &[]);
    let syn = packet(1, Direction::Forward, Flags::SYN, 0, options(Some(7)));
    r.acks.onward(r.now, &syn);
    r.wait(50).back(&mut packet(1, Direction::Backward, Flags::SYN | Flags::ACK, 0, options(Some(7))));
    let mut data = packet(1, Direction::Forward, Flags::ACK, 1, Options::default());
    data.size = 1052;
    let now = r.wait(30).now;
    r.acks.onward(now, &data);
    assert_eq!(
        r.wait(80).ack(1, 1000, 60_000).0,
        1032,
        "32 + 100 segments: 80 ms, as a pure ACK would have told"
    );
}

#[test]
fn a_syn_sent_twice_tells_no_round_trip() {
    let mut r = Router::new("bdp_free", &[]);
    let syn = packet(1, Direction::Forward, Flags::SYN, 0, options(Some(7)));
    let now = r.now;
    r.acks.onward(now, &syn);
    r.wait(1000);
    r.open(1, [Some(7), Some(7)]);
    // The guess is 100 ms: 125 segments.
    assert_eq!(r.ack(1, 1000, 60_000).0, 1227);
}

#[test]
fn all_flows_of_the_papers_scheme_are_granted_everything_and_of_share_a_part() {
    for (policy, sum) in [("bdp_free", 4 * 132), ("share", 132), ("coordinate", 116)] {
        let mut r = Router::new(policy, &[("rtt", Value::Time(Duration::from_millis(80)))]);
        (1..=4).for_each(|flow| r.open(flow, [Some(7), Some(7)]));
        for flow in 1..=4 {
            r.ack(flow, 1, 60_000);
        }
        let granted: u32 = (1..=4).map(|flow| u32::from(r.ack(flow, 1000, 60_000).0) << 7).sum();
        let segments = granted / MSS;
        assert!((sum - 8..=sum).contains(&segments), "{policy}: {segments} segments of {sum}");
    }
}

#[test]
fn who_sends_the_other_way_has_no_share() {
    let mut r = Router::new("coordinate", &[("rtt", Value::Time(Duration::from_millis(80)))]);
    (1..=4).for_each(|flow| r.open(flow, [Some(7), Some(7)]));
    for ack in 1..=3 {
        r.ack(1, ack, 60_000);
        for flow in 2..=4 {
            // Data, which acknowledge nothing but the handshake.
            let mut data = packet(flow, Direction::Backward, Flags::ACK, 0, Options::default());
            let Body::Tcp(segment) = &mut data.body else { unreachable!() };
            segment.payload = Length(1000);
            r.back(&mut data);
        }
    }
    assert_eq!((u32::from(r.ack(1, 4, 60_000).0) << 7) / MSS, 116, "16 + 100 segments, alone");
}

#[test]
fn a_grant_falls_at_once_and_grows_by_a_segment_per_round_trip() {
    let mut r = Router::new("coordinate", &[("rtt", Value::Time(Duration::from_millis(80)))]);
    (1..=4).for_each(|flow| r.open(flow, [Some(7), Some(7)]));
    let segments = |field: u16| (u32::from(field) << 7) / MSS;
    assert_eq!(segments(r.ack(1, 1, 60_000).0), 116, "alone: 16 + 100");
    for flow in 2..=4 {
        r.ack(flow, 1, 60_000);
    }
    assert_eq!(segments(r.ack(1, 2, 60_000).0), 29, "(16 + 100) / 4");
    // The others are silent from now on; after 1 to 2 s they no longer count, and the grant grows by 12.5 in a second.
    for ms in (80..=2000).step_by(80) {
        r.wait(80).ack(1, 2 + ms, 60_000);
    }
    let later = segments(r.ack(1, 5000, 60_000).0);
    assert!((29..=44).contains(&later), "{later}");
    r.waiting = 16;
    assert_eq!(segments(r.ack(1, 5001, 60_000).0), later, "the queue is as long as it is meant to be");
    r.waiting = 32;
    r.wait(2500).ack(2, 2, 60_000);
    assert_eq!(segments(r.ack(1, 5002, 60_000).0), 50, "(0 + 100) / 2: it is longer");
}

#[test]
fn below_one_segment_acks_are_held_so_that_each_flow_has_its_turn() {
    let given = [("rtt", Value::Time(Duration::from_millis(1))), ("hold", Value::Flag(true))];
    let mut r = Router::new("coordinate", &given);
    r.rate = Rate(1_052_000); // a segment takes 8 ms
    (1..=40).for_each(|flow| r.open(flow, [Some(0), Some(0)]));
    for flow in 1..=40 {
        r.ack(flow, 1, 60_000);
    }
    // (16 + 0.1) / 40 segments each; a round takes 40 * 8 ms, cut to the longest hold.
    let holds: std::vec::Vec<_> = (0..3).map(|i| r.ack(40, 1001 + i, 60_000).1.hold).collect();
    let first = holds[0].expect("held");
    assert!(holds.iter().all(|h| h.unwrap() >= first && h.unwrap() <= r.now + LONGEST_HOLD), "{holds:?}");
    assert!(r.acks.counters().held >= 3);
    let alone = Router::new("coordinate", &given).ack(1, 1, 60_000).1;
    assert_eq!(alone.hold, None);
}

#[test]
fn a_packet_with_data_is_not_looked_at_on_its_way_to_the_queue() {
    let mut r = Router::new("free", &[]);
    let mut syn = packet(1, Direction::Forward, Flags::SYN, 0, options(Some(7)));
    syn.size = 500; // a SYN with data (RFC 7413): its connection stays unknown
    let now = r.now;
    r.acks.onward(now, &syn);
    assert!(syn.size().0 > LONGEST_WITHOUT_DATA);
    assert_eq!(r.ack(1, 1, 60_000).0, 60_000);
}

#[test]
fn a_report_makes_the_ack_longer_and_goes_only_where_it_is_invited() {
    let invited = || Options { states: Some(Default::default()), ..Options::default() };
    for (policy, given, reports) in
        [("report", None, true), ("free", Some(("report", Value::Flag(true))), true), ("free", None, false)]
    {
        let mut r = Router::new(policy, given.as_slice());
        let backlog = Backlog { packets: 2, bytes: Bytes(2104) };
        let mut pass = |flags, options, payload| {
            let mut d = packet(1, Direction::Backward, flags, 1, options);
            let Body::Tcp(segment) = &mut d.body else { unreachable!() };
            segment.payload = Length(payload);
            d = Datagram::tcp(d.flow, d.direction, d.ecn, segment.clone());
            let before = d.size().0;
            r.acks.report(r.now, &mut d, 9, backlog, r.rate);
            let Body::Tcp(segment) = &d.body else { unreachable!() };
            assert_eq!(d.size().0, u64::from(20 + segment.size()), "the packet is as long as what it holds");
            let said = segment.options.states.as_ref().map(|s| s.as_slice().to_vec()).unwrap_or_default();
            (d.size().0 - before, said.iter().map(|s| (s.router, s.queue)).collect::<std::vec::Vec<_>>())
        };
        let silent = (0, std::vec![]);
        // 4 bytes become 14, and 16 with padding; 2104/64 = 32.9.
        let said = if reports { (12, std::vec![(9, 33)]) } else { silent.clone() };
        assert_eq!(pass(Flags::ACK, invited(), 0), said, "{policy}");
        for (flags, options, payload) in [
            (Flags::ACK, Options::default(), 0),
            (Flags::ACK, invited(), 1000),
            (Flags::SYN | Flags::ACK, invited(), 0),
        ] {
            assert_eq!(pass(flags, options, payload), silent, "{policy} {flags:?} {payload}");
        }
        assert_eq!(r.acks.counters().reported, u64::from(reports));
    }
}

#[test]
fn a_router_that_only_reports_leaves_windows_alone_and_a_fourth_finds_no_room() {
    let mut r = Router::new("report", &[]);
    r.open(1, [Some(0), Some(0)]);
    r.waiting = 32;
    assert_eq!(r.ack(1, 1000, 60_000), (60_000, Verdict::default()));
    assert_eq!((r.acks.counters().passed, r.acks.counters().unknown), (0, 0));
    let invited = Options { states: Some(Default::default()), ..Options::default() };
    let mut ack = packet(1, Direction::Backward, Flags::ACK, 1, invited);
    for router in 1..=4 {
        r.acks.report(r.now, &mut ack, router, Backlog { packets: 0, bytes: Bytes(0) }, r.rate);
    }
    assert_eq!((r.acks.counters().reported, ack.size().0), (3, 20 + 20 + 36));
}

#[test]
fn a_connection_in_use_believes_no_syn_that_nobody_answers() {
    let mut r = Router::new("free", &[]);
    r.open(1, [Some(0), Some(0)]);
    r.waiting = 12;
    let before = r.ack(1, 1000, 60_000).0;
    let forged = Options { window_scale: Some(14), mss: Some(1), ..Options::default() };
    let now = r.now;
    r.acks.onward(now, &packet(1, Direction::Forward, Flags::SYN, 0, forged.clone()));
    r.acks.onward(now, &packet(1, Direction::Forward, Flags::SYN | Flags::ACK, 0, forged.clone()));
    assert_eq!(r.ack(1, 2000, 60_000).0, before);
    r.back(&mut packet(1, Direction::Backward, Flags::SYN, 0, forged.clone()));
    assert_eq!(r.ack(1, 3000, 60_000).0, before);
    // Answered, it is a new connection: here one without scaled windows, of segments of 500 bytes.
    let fresh = Options { mss: Some(500), ..Options::default() };
    r.acks.onward(now, &packet(1, Direction::Forward, Flags::SYN, 0, fresh.clone()));
    r.wait(50).back(&mut packet(1, Direction::Backward, Flags::SYN | Flags::ACK, 0, fresh));
    assert_eq!((before, r.ack(1, 1, 60_000).0), (20_000, 10_000));
}

#[test]
fn acks_of_connections_that_nobody_opened_are_no_flows() {
    let mut r = Router::new("share", &[]);
    r.open(1, [Some(0), Some(0)]);
    let alone = r.ack(1, 1000, 60_000).0;
    (100..1100).for_each(|forged| assert_eq!(r.ack(forged, 7, 60_000).0, 60_000));
    assert_eq!((r.ack(1, 2000, 60_000).0, r.acks.flows()), (alone, 1.0));
}

#[test]
fn a_segment_is_what_both_ends_take() {
    // The receiver's link takes 9000 bytes, the sender's 1500: what comes is of the lesser.
    let mut r = Router::new("free", &[]);
    let options = |mss| Options { window_scale: Some(0), mss: Some(mss), ..Options::default() };
    let now = r.now;
    r.acks.onward(now, &packet(1, Direction::Forward, Flags::SYN, 0, options(1460)));
    r.back(&mut packet(1, Direction::Backward, Flags::SYN | Flags::ACK, 0, options(8960)));
    r.waiting = 12;
    assert_eq!(r.ack(1, 1000, 60_000).0, 20 * 1460);
}

#[test]
fn who_takes_over_knows_the_connections_however_many_it_has_room_for() {
    let mut r = Router::new("share", &[]);
    r.open(1, [Some(0), Some(0)]);
    let before = (r.ack(1, 1000, 60_000).0, r.acks.counters());
    let (entry, settings) = settings("share", &[("connections", Value::Count(1000))]);
    let larger = AckWindow::new(Chosen::new(entry, &settings).unwrap().unwrap(), Room::Packets(32));
    let old = core::mem::replace(&mut r.acks, larger.clone());
    r.acks = larger.after(old);
    assert_eq!(r.acks.counters(), before.1);
    assert_eq!(r.ack(1, 2000, 60_000).0, before.0);
}
