//! RFC 3168 section 6.1, clause by clause.

use super::net::{Fate, Net};
use super::puppet::{Puppet, assert_table};
use super::*;
use crate::packet::Ecn;
use crate::wire::tcp::Flags;
use std::cell::RefCell;
use std::format;
use std::rc::Rc;
use std::string::String;

const NONE: Flags = Flags(0);
const SETUP: Flags = Flags(0xC0);

fn ecn(stack: Stack) -> Stack {
    Stack { ecn: true, ..plain(stack) }
}

/// ECE and CWR of a segment.
fn told<P>(s: &Segment<P>) -> Flags {
    Flags(s.flags.0 & SETUP.0)
}

type Seen = Rc<RefCell<Vec<(usize, Segment)>>>;

/// Notes what both ends send.
fn watched(mut net: Net<Length>) -> (Net<Length>, Seen) {
    let seen = Seen::default();
    for from in 0..2 {
        let seen = seen.clone();
        net = net.fate(from, move |_, s| {
            seen.borrow_mut().push((from, s.clone()));
            Fate::Pass
        });
    }
    (net, seen)
}

#[test]
fn ecn_is_used_only_if_the_syn_offers_it_and_the_syn_ack_accepts() {
    for (opener, listener) in [(false, false), (false, true), (true, false), (true, true)] {
        let side = |ecn| config(Stack { ecn, ..plain(rfc()) });
        let (net, seen) = watched(Net::new(side(opener), side(listener)));
        let mut net = net.transfer(30_000);
        net.apps[1].to_write = 5000;
        net.finish();
        let seen = seen.borrow();
        let syns: Vec<_> =
            seen.iter().filter(|(_, s)| s.flags.has(Flags::SYN)).map(|(_, s)| told(s)).collect();
        let both = opener && listener;
        let offer = if opener { SETUP } else { NONE };
        assert_eq!(syns, [offer, if both { Flags::ECE } else { NONE }], "section 6.1.1: {opener} {listener}");
        for (from, s) in seen.iter() {
            let capable = both && s.payload.0 > 0;
            assert_eq!(s.ecn, if capable { Ecn::Ect0 } else { Ecn::NotEct }, "end {from}: {s:?}");
        }
        assert!([0, 1].iter().all(|end| seen.iter().any(|(from, s)| from == end && s.payload.0 > 0)));
    }
}

#[test]
fn after_two_lost_ecn_setup_syns_the_opener_does_without() {
    // RFC 6298: 0, 1, 3 and 7 s.
    let mut tcp = Tcp::<Length>::connect(config(ecn(rfc())), reno(&rfc()));
    let mut syns = Vec::new();
    for at in [0, 1000, 3000, 7000] {
        syns.push(told(&tcp.transmit(Time::from_millis(at)).unwrap()));
    }
    assert_eq!(syns, [SETUP, SETUP, NONE, NONE], "section 6.1.1.1");
    for (lost, used) in [(0, true), (1, true), (2, false)] {
        let net = Net::<Vec<u8>>::new(config(ecn(rfc())), config(ecn(rfc()))).transfer(5000);
        let mut net = net.fate(0, move |n, _| if n <= lost { Fate::Lose } else { Fate::Pass });
        net.finish();
        assert_eq!(net.ends.each_ref().map(|e| e.marking.heard(Flags::ECE)), [used; 2], "{lost} lost");
    }
}

#[test]
fn a_syn_repeated_without_ecn_takes_the_offer_back() {
    // Both SYN-ACKs that accept are lost; the third SYN comes without ECN, and so must its answer and all data.
    let net = Net::<Length>::new(config(ecn(rfc())), config(ecn(rfc()))).transfer(5000);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let noted = answers.clone();
    let mut net = net.fate(1, move |_, s| {
        if s.flags.has(Flags::SYN) {
            noted.borrow_mut().push(told(s));
        }
        // The SYN-ACK has a timer of its own: what it sends before 3 s + 50 ms is lost.
        let early = s.flags.has(Flags::SYN) && told(s) == Flags::ECE;
        if early { Fate::Lose } else { Fate::Pass }
    });
    net.finish();
    let answers = answers.borrow();
    assert_eq!((answers[0], answers.last()), (Flags::ECE, Some(&NONE)), "section 6.1.1: {answers:?}");
    assert!(net.ends.iter().all(|e| !e.marking.heard(Flags::ECE)));
}

#[test]
fn reserved_bits_sent_back_as_they_came_are_no_consent() {
    let mut tcp = Tcp::<Length>::connect(config(ecn(rfc())), reno(&rfc()));
    let syn = tcp.transmit(Time::ZERO).unwrap();
    let (seq, flags) = (Seq(9), syn.flags | Flags::ACK);
    tcp.receive(Time::ZERO, Segment { seq, ack: Seq(5001), flags, window: 9000, ..Segment::default() });
    tcp.offer(500);
    let sent: Vec<_> = core::iter::from_fn(|| tcp.transmit(Time::ZERO)).collect();
    assert_eq!(tcp.state(), State::Established);
    assert!(sent.iter().any(|s| s.payload.0 == 500) && sent.iter().all(|s| s.ecn == Ecn::NotEct), "{sent:?}");
}

#[test]
fn who_has_sent_a_syn_without_ecn_sends_no_capable_data_but_echoes_marks() {
    // The answer to the second SYN comes after the third has left: the peer may go by either of them.
    let mut tcp = Tcp::<Length>::connect(config(ecn(rfc())), reno(&rfc()));
    let syns = [0, 1000, 3000].map(|at| told(&tcp.transmit(Time::from_millis(at)).unwrap()));
    assert_eq!(syns, [SETUP, SETUP, NONE]);
    let now = Time::from_millis(3010);
    let accepted = Flags::SYN | Flags::ACK | Flags::ECE;
    tcp.receive(
        now,
        Segment { seq: Seq(9), ack: Seq(5001), flags: accepted, window: 9000, ..Segment::default() },
    );
    tcp.offer(500);
    let sent: Vec<_> = core::iter::from_fn(|| tcp.transmit(now)).collect();
    assert!(sent.iter().any(|s| s.payload.0 == 500) && sent.iter().all(|s| s.ecn == Ecn::NotEct), "{sent:?}");
    let (ecn, payload) = (Ecn::Ce, Length(1000));
    let (seq, ack, flags) = (Seq(10), Seq(5001), Flags::ACK);
    for seq in [seq, seq.plus(1000)] {
        tcp.receive(now, Segment { seq, ack, flags, ecn, payload, window: 9000, ..Segment::default() });
    }
    assert_eq!(told(&tcp.transmit(now).unwrap()), Flags::ECE, "section 6.1.1: it MUST process these packets");
}

#[test]
fn two_ends_that_open_at_once_agree_on_ecn() {
    for wanted in [[true, true], [true, false]] {
        let side =
            |i: usize| Config { iss: 77 * i as u32, ..config(Stack { ecn: wanted[i], ..plain(rfc()) }) };
        let ends = [0, 1].map(|i| Tcp::<Vec<u8>>::connect(side(i), reno(&rfc())));
        let mut net = Net::of(ends).transfer(20_000);
        net.run(Time::from_millis(160));
        let agreed = net.ends.each_ref().map(|e| e.marking.heard(Flags::ECE));
        assert_eq!(agreed, [wanted[1]; 2]);
        net.finish();
    }
}

/// The peer sends `len` bytes in order, marked or not, with these flags.
fn arrives(p: &mut Puppet, len: u32, mark: Ecn, flags: Flags) {
    let segment = Segment { ecn: mark, ..p.segment(Flags::ACK | flags, len) };
    p.seq += len as u64;
    p.says(segment);
}

/// ECE and CWR of all that was sent since the last look.
fn echoes(p: &mut Puppet) -> Vec<Flags> {
    core::mem::take(&mut p.out).iter().map(|(_, s)| told(s)).collect()
}

#[test]
fn a_mark_is_echoed_on_every_ack_until_cwr_comes() {
    let stack = Stack { delayed_ack: DelayedAck::None, ..ecn(rfc()) };
    let mut p = Puppet::new(config(stack));
    let mut echo = |mark, flags| {
        arrives(&mut p, 500, mark, flags);
        echoes(&mut p)
    };
    let (e, none) = (std::vec![Flags::ECE], std::vec![NONE]);
    assert_eq!(echo(Ecn::Ect0, NONE), none);
    assert_eq!(echo(Ecn::Ce, NONE), e, "section 6.1.3");
    assert_eq!(echo(Ecn::Ect0, NONE), e);
    assert_eq!(echo(Ecn::NotEct, NONE), e, "a retransmission changes nothing");
    assert_eq!(echo(Ecn::Ect0, Flags::CWR), none);
    assert_eq!(echo(Ecn::Ce, Flags::CWR), e, "the mark on the segment with CWR is a new one");
    assert_eq!(echo(Ecn::Ect0, NONE), e);
    p.write(300);
    assert_eq!(echoes(&mut p), e, "data carry the ACK, and the echo with it");
    p.ack(300);
    arrives(&mut p, 500, Ecn::Ect0, Flags::CWR);
    p.write(300);
    assert_eq!(echoes(&mut p), [NONE, NONE]);
}

#[test]
fn a_delayed_ack_of_a_marked_and_a_clean_segment_echoes_the_mark() {
    let mut p = Puppet::new(config(ecn(rfc())));
    arrives(&mut p, 1000, Ecn::Ce, NONE);
    arrives(&mut p, 1000, Ecn::Ect0, NONE);
    assert_eq!(
        echoes(&mut p),
        [Flags::ECE],
        "section 6.1.3: if any of the segments it acknowledges was marked"
    );
}

#[test]
fn marks_outside_the_window_and_on_a_connection_without_ecn_are_ignored() {
    let mut p = Puppet::new(config(ecn(rfc())));
    arrives(&mut p, 1000, Ecn::Ect0, NONE);
    for seq in [0, 500_000] {
        p.seq = seq;
        arrives(&mut p, 1000, Ecn::Ce, NONE); // known already; behind the window
    }
    assert_eq!(echoes(&mut p), [NONE, NONE], "section 6.1.5");
    let mut p = Puppet::new(config(plain(rfc())));
    arrives(&mut p, 2000, Ecn::Ce, NONE);
    assert_eq!(echoes(&mut p), [NONE]);
}

/// A sender whose window of `cwnd` segments is in flight.
fn opened(stack: Stack, cwnd: u64) -> Puppet {
    let mut p = Puppet::new(config(stack));
    p.tcp.controller.set_congestion_window(Bytes(cwnd * MSS as u64));
    p.write(100_000);
    p.out.clear();
    p
}

/// ACKs for so many segments, with ECE where it says `e`; each with what it does. `c` marks a segment that carries CWR, `n` one
/// that is not ECN-capable.
fn rows(p: &mut Puppet, acks: &[(u64, &str)]) -> Vec<String> {
    let mut row = |&(ack, e): &(u64, &str)| {
        p.ack = ack * MSS as u64;
        let flags = if e == "e" { Flags::ACK | Flags::ECE } else { Flags::ACK };
        p.says(p.segment(flags, 0));
        let mark = |(_, s): &(Time, Segment<Vec<u8>>)| {
            let cwr = if s.flags.has(Flags::CWR) { " c" } else { "" };
            let not = if s.ecn == Ecn::NotEct { " n" } else { "" };
            format!("{cwr}{not}")
        };
        let marks: String = p.out.iter().map(mark).collect();
        format!("{ack}{e}: {}{marks}", p.state())
    };
    acks.iter().map(&mut row).collect()
}

#[test]
fn the_window_is_halved_at_most_once_per_window_of_data_and_cwr_says_so_once() {
    let mut p = opened(ecn(rfc()), 10);
    let e = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|ack| (ack, "e"));
    let got = rows(&mut p, &e);
    assert_table(
        &got,
        "1e: cwnd 5 ssthresh 5 sends
         2e: cwnd 5 ssthresh 5 sends
         3e: cwnd 5 ssthresh 5 sends
         4e: cwnd 5 ssthresh 5 sends
         5e: cwnd 5 ssthresh 5 sends
         6e: cwnd 5 ssthresh 5 sends 10 c
         7e: cwnd 5 ssthresh 5 sends 11
         8e: cwnd 5 ssthresh 5 sends 12
         9e: cwnd 5 ssthresh 5 sends 13
         10e: cwnd 5 ssthresh 5 sends 14
         11e: cwnd 2 ssthresh 2 sends",
    ); // section 6.1.2: half of 10 in flight; the ACK for segment 10, sent after the cut, is of the next window: half of 5
    assert_eq!((p.tcp.counters().ecn_reductions, p.tcp.counters().retransmissions), (2, 0));
}

#[test]
fn no_ack_with_an_echo_opens_the_window() {
    let mut p = opened(ecn(rfc()), 10);
    let got = rows(&mut p, &[(1, "e"), (2, ""), (3, "e"), (4, "")]);
    assert_table(
        &got,
        "1e: cwnd 5 ssthresh 5 sends
         2: cwnd 6 ssthresh 5 sends
         3e: cwnd 6 ssthresh 5 sends
         4: cwnd 6 ssthresh 5 sends",
    ); // section 6.1.2; cwnd = ssthresh is still slow start, and the segment at 4 begins avoidance
}

#[test]
fn a_loss_in_a_window_that_an_echo_has_halved_is_repaired_and_halves_it_no_second_time() {
    for stack in [rfc(), net2()] {
        let mut p = opened(ecn(stack), 10);
        rows(&mut p, &[(1, "e"), (1, ""), (1, "")]);
        let got = rows(&mut p, &[(1, "")]);
        assert_eq!(
            got,
            ["1: cwnd 8 ssthresh 5 sends 1 n"],
            "5 + 3 segments, segment 1 again, not ECN-capable"
        );
        let counters = p.tcp.counters();
        assert_eq!((counters.ecn_reductions, counters.fast_retransmits), (1, 1));
    }
}

#[test]
fn an_echo_in_a_window_that_a_loss_has_halved_halves_it_no_second_time() {
    let mut p = opened(ecn(rfc()), 10);
    let got =
        rows(&mut p, &[(0, ""), (0, "e"), (0, "e"), (0, "e"), (0, "e"), (0, "e"), (10, "e"), (11, "e")]);
    assert_table(
        &got[2..],
        "0e: cwnd 8 ssthresh 5 sends 0 n
         0e: cwnd 9 ssthresh 5 sends
         0e: cwnd 10 ssthresh 5 sends
         0e: cwnd 11 ssthresh 5 sends 10 c
         10e: cwnd 2 ssthresh 5 sends 11
         11e: cwnd 1 ssthresh 2 sends",
    ); // CWR tells of the loss's cut (section 6.1.2); the full ACK leaves min(5, 1 + 1); segment 10 was sent after it
    assert_eq!((p.tcp.counters().ecn_reductions, p.tcp.counters().fast_retransmits), (1, 1));
}

#[test]
fn an_echo_of_the_next_window_waits_for_the_end_of_recovery() {
    let mut p = opened(ecn(rfc()), 10);
    rows(&mut p, &[1, 2, 3, 4, 5, 6, 7, 8].map(|ack| (ack, "e"))); // 10, 11 and 12 left after the cut
    let got = rows(&mut p, &[(8, ""), (8, ""), (8, ""), (11, "e"), (16, "e")]);
    assert_table(
        &got[2..],
        "8: cwnd 8 ssthresh 5 sends 8 13 14 15 n
         11e: cwnd 6 ssthresh 5 sends 11 16 n
         16e: cwnd 1 ssthresh 2 sends",
    ); // a partial ACK: 8 - 3 + 1; the full one leaves min(5, 1 + 1), of which the echo takes half
    assert_eq!(p.tcp.counters().ecn_reductions, 2);
}

#[test]
fn an_echo_on_the_ack_that_ends_recovery_halves_the_window_that_is_left() {
    let mut p = opened(ecn(rfc()), 10);
    let got =
        rows(&mut p, &[(0, ""), (0, ""), (0, ""), (0, ""), (0, ""), (0, ""), (0, ""), (0, ""), (12, "e")]);
    assert_table(
        &got[7..],
        "0: cwnd 13 ssthresh 5 sends 12
         12e: cwnd 1 ssthresh 2 sends",
    ); // 11 and 12 left after `recover`; min(5, 1 + 1) / 2, not half of the 13 that had been outstanding
}

#[test]
fn an_echo_opens_no_window_whatever_floor_its_controller_has() {
    struct Two(Bytes);
    impl Controller for Two {
        fn on_start(&mut self, _: &Start) {}
        fn on_ack(&mut self, _: &crate::congestion::Ack) {}
        fn on_congestion(&mut self, _: &crate::congestion::Congestion) {
            self.0 = Bytes(2000);
        }
        fn set_congestion_window(&mut self, window: Bytes) {
            self.0 = window;
        }
        fn congestion_window(&self) -> Bytes {
            self.0
        }
        fn ssthresh(&self) -> Bytes {
            Bytes(2000)
        }
    }
    let mut p = Puppet::new(config(ecn(rfc())));
    p.tcp.controller = Box::new(Two(Bytes(1000)));
    p.write(5000);
    assert_eq!(rows(&mut p, &[(1, "e")]), ["1e: cwnd 1 ssthresh 2 sends 0"]);
}

#[test]
fn a_timeout_in_a_window_that_an_echo_has_halved_leaves_ssthresh() {
    for stack in [rfc(), net2()] {
        let mut p = opened(ecn(stack), 10);
        rows(&mut p, &[(1, "e")]);
        p.at(1600);
        assert_eq!(p.tcp.counters().timeouts, 1);
        // Not half of what is still in flight, nine segments, or of BSD's window, five.
        assert_eq!(p.state(), "cwnd 1 ssthresh 5 sends 1", "section 6.1.2");
    }
}

#[test]
fn retransmissions_pure_acks_probes_and_a_lone_fin_are_not_ecn_capable() {
    let mut p = opened(ecn(rfc()), 4);
    p.at(1000); // the timer fires: segment 0 again, and new ones as the window grows by RFC 3465's two segments
    assert_eq!(rows(&mut p, &[(4, "")]), ["4: cwnd 3 ssthresh 2 sends 0 4 5 6 n c"], "section 6.1.5");
    arrives(&mut p, 1000, Ecn::Ect0, NONE);
    arrives(&mut p, 1000, Ecn::Ect0, NONE);
    assert_eq!(
        p.out.iter().map(|(_, s)| (s.payload.len(), s.ecn)).collect::<Vec<_>>(),
        [(0, Ecn::NotEct)],
        "6.1.4"
    );

    let mut p = Puppet::new(config(ecn(rfc())));
    p.window = 0;
    p.ack(0).write(500).at(1000);
    let probe = p.out.pop().unwrap().1;
    assert_eq!((probe.payload.len(), probe.ecn, told(&probe)), (1, Ecn::NotEct, NONE), "section 6.1.6");
    p.window = 9000;
    p.ack(0);
    assert_eq!(p.out.pop().unwrap().1.ecn, Ecn::Ect0, "its byte, now sent in earnest");
    p.ack(500);
    p.tcp.close();
    p.flush();
    let fin = p.out.pop().unwrap().1;
    assert!(fin.flags.has(Flags::FIN) && fin.payload.is_empty() && fin.ecn == Ecn::NotEct);
}

#[test]
fn a_window_of_one_segment_waits_for_the_retransmission_timer() {
    let mut p = opened(ecn(rfc()), 2);
    let got = rows(&mut p, &[(1, "e"), (2, ""), (3, "e")]);
    assert_table(
        &got[..2],
        "1e: cwnd 1 ssthresh 2 sends
         2: cwnd 2 ssthresh 2 sends 2 3 c",
    );
    // One halved again is one; from then on every echo of a new window costs an RTO of 1 s.
    let mut p = opened(ecn(rfc()), 2);
    rows(&mut p, &[(1, "e"), (2, "e")]);
    p.out.clear();
    p.at(50).ack = 3000;
    p.says(p.segment(Flags::ACK | Flags::ECE, 0));
    assert_eq!((p.sent(), p.tcp.counters().ecn_reductions), (Vec::new(), 2), "section 6.1.2");
    p.at(1049);
    assert!(p.sent().is_empty());
    p.at(1050);
    assert_eq!(p.sent_at(), ["1050 3000:4000"]);
    assert_eq!(p.tcp.counters().timeouts, 0, "nothing was outstanding");
    p.at(1100).ack(4000);
    assert_eq!(p.sent(), ["4000:5000", "5000:6000"], "without an echo it opens again");
}

#[test]
fn one_mark_on_the_way_costs_one_halving_and_no_retransmission() {
    for stack in [rfc(), net2()] {
        let net = Net::<Vec<u8>>::new(config(ecn(stack)), config(ecn(stack))).transfer(200_000);
        let cwrs = Rc::new(RefCell::new(0));
        let counted = cwrs.clone();
        let mut net = net.fate(0, move |_, s| {
            *counted.borrow_mut() += (s.flags.has(Flags::CWR) && !s.flags.has(Flags::SYN)) as u32;
            let number = s.seq.0.wrapping_sub(5001) / MSS;
            if number == 30 && !s.payload.is_empty() { Fate::Mark } else { Fate::Pass }
        });
        net.finish();
        let counters = net.ends[0].counters();
        assert_eq!((counters.ecn_reductions, counters.retransmissions, counters.timeouts), (1, 0, 0));
        assert_eq!(*cwrs.borrow(), 1);
    }
}
