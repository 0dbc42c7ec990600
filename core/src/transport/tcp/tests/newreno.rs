//! RFC 6582, ACK by ACK, on stack `rfc` without timestamps.

use super::net::Net;
use super::puppet::{Puppet, assert_table};
use super::*;
use std::string::String;

fn opened(cwnd: u64) -> Puppet {
    let mut p = Puppet::new(config(plain(rfc())));
    p.tcp.controller.set_congestion_window(Bytes(cwnd * MSS as u64));
    p.write(100_000);
    p.state();
    p
}

fn rows(p: &mut Puppet, acks: &[u64]) -> Vec<String> {
    acks.iter().map(|ack| p.row(*ack)).collect()
}

#[test]
fn partial_acks_resend_the_next_hole_and_the_full_one_ends_recovery() {
    // Segments 0, 3 and 6 of ten are lost: seven duplicates, then a partial ACK per round trip.
    let mut p = opened(10);
    let got = rows(&mut p, &[0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 12, 13]);
    assert_table(
        &got,
        "ack 0: cwnd 10 ssthresh - sends
         ack 0: cwnd 10 ssthresh - sends
         ack 0: cwnd 8 ssthresh 5 sends 0
         ack 0: cwnd 9 ssthresh 5 sends
         ack 0: cwnd 10 ssthresh 5 sends
         ack 0: cwnd 11 ssthresh 5 sends 10
         ack 0: cwnd 12 ssthresh 5 sends 11
         ack 3: cwnd 10 ssthresh 5 sends 3 12
         ack 3: cwnd 11 ssthresh 5 sends 13
         ack 3: cwnd 12 ssthresh 5 sends 14
         ack 6: cwnd 10 ssthresh 5 sends 6 15
         ack 6: cwnd 11 ssthresh 5 sends 16
         ack 12: cwnd 7 ssthresh 5 sends 17 18
         ack 13: cwnd 7 ssthresh 5 sends 19",
    ); // 12 - 3 + 1; 12 - 3 + 1; full ACK beyond 10: min(5, max(4, 1) + 1), and the ACK itself grows it by 2 in slow start
    assert_eq!((p.tcp.counters().fast_retransmits, p.tcp.counters().timeouts), (1, 0));
}

#[test]
fn three_losses_in_a_window_cost_three_round_trips_and_no_timeout() {
    let stack = Stack { delayed_ack: DelayedAck::None, ..plain(rfc()) };
    let mut net = Net::<Length>::new(config(stack), config(stack)).lose_segments(0, &[22, 24, 27]);
    net.ends[0].offer(100_000);
    let mut cuts = Vec::new();
    while net.ends[0].acknowledged() < 100_000 && net.step() {
        if net.ends[0].state() == State::Established {
            cuts.push(net.ends[0].controller().ssthresh());
        }
    }
    let counters = net.ends[0].counters();
    assert_eq!((counters.timeouts, counters.fast_retransmits, counters.retransmissions), (0, 1, 3));
    cuts.dedup();
    assert_eq!(cuts.len(), 2, "one cut from the initial threshold: {cuts:?}");
}

#[test]
fn duplicates_of_data_sent_before_a_timeout_do_not_cut_again() {
    let mut p = opened(10);
    p.at(1000);
    assert_eq!(p.state(), "cwnd 1 ssthresh 5 sends 0");
    let got = rows(&mut p, &[2, 2, 2, 2, 2]);
    assert_table(
        &got[1..],
        "ack 2: cwnd 3 ssthresh 5 sends
         ack 2: cwnd 3 ssthresh 5 sends
         ack 2: cwnd 3 ssthresh 5 sends
         ack 2: cwnd 3 ssthresh 5 sends",
    ); // section 3.2 step 2: una = 2 is within `recover` = 10
    assert_eq!(p.tcp.counters().fast_retransmits, 0);
}

#[test]
fn a_timeout_within_recovery_halves_no_second_time_however_much_lies_behind_the_hole() {
    let mut p = opened(10);
    // 3 duplicates cut to 5; 37 more of them let 33 new segments out behind the first hole.
    rows(&mut p, &[0; 40]);
    assert_eq!(p.tcp.controller.ssthresh(), Bytes(5 * MSS as u64));
    assert!(p.tcp.in_flight() > 30 * MSS as u64);
    p.at(1500);
    assert_eq!(p.state(), "cwnd 1 ssthresh 5 sends 0", "not half of the 40 segments outstanding");
    p.at(7000);
    assert_eq!(p.tcp.controller.ssthresh(), Bytes(5 * MSS as u64), "nor at the timeout after it");
}

#[test]
fn only_the_first_partial_ack_restarts_the_timer() {
    let mut p = opened(10);
    p.at(100);
    rows(&mut p, &[0, 0, 0, 0, 0, 0, 0]);
    let set = p.tcp.wake_at().unwrap();
    assert_eq!(set, Time::from_millis(1100), "as the first left again");
    p.at(200);
    p.row(3);
    assert_eq!(p.tcp.wake_at(), Some(Time::from_millis(1200)));
    p.at(300);
    p.row(6);
    assert_eq!(p.tcp.wake_at(), Some(Time::from_millis(1200)), "section 3.2 step 3");
}

#[test]
fn a_full_ack_leaves_no_burst() {
    let mut p = opened(10);
    rows(&mut p, &[0, 0, 0]);
    p.tcp.written = 10_000; // nothing new to send, so nothing is in flight behind the full ACK
    let row = p.row(10);
    assert_eq!(
        row, "ack 10: cwnd 4 ssthresh 5 sends",
        "min(5, max(0, 1) + 1), grown by the same ACK in slow start"
    );
}
