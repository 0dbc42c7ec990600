//! The sequences of Net/2 and 4.4BSD, in segments of 1000 bytes: congestion window, threshold, and which segments leave, ACK by
//! ACK. Windows are worked by hand from `cwnd += mss` while `cwnd <= ssthresh`, `mss * mss / cwnd + mss / 8` beyond.

use super::net::{Fate, Net};
use super::puppet::{Puppet, assert_table};
use super::*;
use std::format;
use std::string::String;

/// BSD, no timestamps, with a window opened to `cwnd` segments and that much in flight from segment 0.
fn opened(stack: Stack, cwnd: u64, ssthresh: u64) -> Puppet {
    let mut p = Puppet::new(config(plain(stack)));
    if ssthresh > 0 {
        // The only way to set a threshold is a loss: half of twice as much.
        let flight = Bytes(2 * ssthresh * MSS as u64);
        let signal = crate::congestion::Signal::Loss;
        p.tcp.controller.on_congestion(&crate::congestion::Congestion { now: p.now, signal, flight });
    }
    p.tcp.controller.set_congestion_window(Bytes(cwnd * MSS as u64));
    p.write(100_000);
    p
}

fn rows(p: &mut Puppet, acks: &[u64]) -> Vec<String> {
    acks.iter().map(|ack| p.row(*ack)).collect()
}

#[test]
fn slow_start_adds_a_segment_per_ack_and_still_at_equality() {
    let mut p = opened(net2(), 1, 4);
    assert_eq!(p.state(), "cwnd 1 ssthresh 4 sends 0");
    let got = rows(&mut p, &[1, 2, 3, 4, 5, 6]);
    assert_table(
        &got,
        "ack 1: cwnd 2 ssthresh 4 sends 1 2
         ack 2: cwnd 3 ssthresh 4 sends 3 4
         ack 3: cwnd 4 ssthresh 4 sends 5 6
         ack 4: cwnd 5 ssthresh 4 sends 7 8
         ack 5: cwnd 5.325 ssthresh 4 sends 9
         ack 6: cwnd 5.637 ssthresh 4 sends 10",
    ); // at cwnd = 4 = ssthresh still a whole segment; then 1000/5 + 125 and 1000000/5325 + 125 = 187 + 125
}

#[test]
fn a_delayed_ack_grows_the_window_like_any_other() {
    let mut p = opened(net2(), 4, 0);
    p.state();
    let got = rows(&mut p, &[2, 4]);
    assert_table(
        &got,
        "ack 2: cwnd 5 ssthresh - sends 4 5 6
                        ack 4: cwnd 6 ssthresh - sends 7 8 9",
    );
}

#[test]
fn without_the_extra_eighth_avoidance_adds_a_segment_per_round_trip() {
    let mut p = opened(net2(), 10, 5);
    assert_eq!(p.state(), "cwnd 10 ssthresh 5 sends 0 1 2 3 4 5 6 7 8 9");
    for n in 1..=10 {
        p.ack(n * 1000);
    }
    let grown = p.tcp.controller().congestion_window().0;
    assert!((12_150..12_260).contains(&grown), "{grown}: one segment, and ten eighths");
}

#[test]
fn the_third_duplicate_halves_resends_and_inflates_and_the_next_ack_deflates() {
    let mut p = opened(net2(), 8, 0);
    p.state();
    let got = rows(&mut p, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 10]);
    assert_table(
        &got,
        "ack 1: cwnd 9 ssthresh - sends 8 9
         ack 1: cwnd 9 ssthresh - sends
         ack 1: cwnd 9 ssthresh - sends
         ack 1: cwnd 7 ssthresh 4 sends 1
         ack 1: cwnd 8 ssthresh 4 sends
         ack 1: cwnd 9 ssthresh 4 sends
         ack 1: cwnd 10 ssthresh 4 sends 10
         ack 1: cwnd 11 ssthresh 4 sends 11
         ack 1: cwnd 12 ssthresh 4 sends 12
         ack 9: cwnd 5 ssthresh 4 sends 13
         ack 10: cwnd 5.325 ssthresh 4 sends 14",
    ); // 9 / 2 = 4 whole segments; 4 + 3; deflated to 4 = ssthresh, so the same ACK adds a segment
    assert_eq!((p.tcp.counters().fast_retransmits, p.tcp.counters().timeouts), (1, 0));
}

#[test]
fn a_window_inflated_by_exactly_three_duplicates_is_not_deflated() {
    let mut p = opened(net2(), 8, 0);
    p.state();
    let got = rows(&mut p, &[1, 1, 1, 1, 5]);
    assert_table(
        &got[3..],
        "ack 1: cwnd 7 ssthresh 4 sends 1
         ack 5: cwnd 7.267 ssthresh 4 sends 10 11",
    ); // t_dupacks > tcprexmtthresh is false: 7 stays, and grows by 142 + 125
}

#[test]
fn half_is_counted_of_the_smaller_window_and_at_least_two_segments() {
    let mut p = opened(net2(), 20, 0);
    p.window = 6000;
    p.state();
    rows(&mut p, &[1, 1, 1, 1]);
    assert_eq!(p.tcp.controller().ssthresh(), Bytes(3000), "min(cwnd 21, snd_wnd 6) / 2");
    let mut p = opened(net2(), 3, 0);
    p.state();
    rows(&mut p, &[0, 0, 0]);
    assert_eq!(p.tcp.controller().ssthresh(), Bytes(2000), "3 / 2 is 1, but never under 2");
}

#[test]
fn a_duplicate_counts_only_without_data_and_with_an_unchanged_window_and_data_outstanding() {
    let mut p = opened(net2(), 8, 0);
    p.state();
    rows(&mut p, &[1, 1, 1]);
    p.window -= 100;
    rows(&mut p, &[1]);
    assert_eq!(p.tcp.counters().fast_retransmits, 0, "a window update starts the count anew");
    rows(&mut p, &[1, 1]);
    p.data(0, 10);
    rows(&mut p, &[1, 1]);
    assert_eq!(p.tcp.counters().fast_retransmits, 0, "so does data");
    rows(&mut p, &[1]);
    assert_eq!(p.tcp.counters().fast_retransmits, 1);
    let mut p = Puppet::new(config(plain(net2())));
    p.write(1000);
    rows(&mut p, &[1, 1, 1, 1, 1]);
    assert_eq!(p.tcp.counters().duplicate_acks, 0, "nothing is outstanding");
}

#[test]
fn a_window_update_in_recovery_ends_it_as_in_bsd() {
    // BSD keeps nothing but t_dupacks: at 0 the inflated window stays at the next ACK.
    let mut p = opened(net2(), 8, 0);
    p.state();
    rows(&mut p, &[1, 1, 1, 1, 1]);
    p.window += 100;
    let got = rows(&mut p, &[1, 9]);
    assert_table(
        &got,
        "ack 1: cwnd 8 ssthresh 4 sends
                        ack 9: cwnd 8.25 ssthresh 4 sends 10 11 12 13 14 15 16",
    );
}

/// What end 0 sends, from the first duplicate ACK on: ms since the start and segment number; and the whole.
fn path(stack: Stack, lost: &'static [u64]) -> (Net<Length>, Vec<String>) {
    let stack = Stack { delayed_ack: DelayedAck::None, ..plain(stack) };
    let mut net = Net::<Length>::new(config(stack), config(stack)).lose_segments(0, lost);
    let mut judge = core::mem::replace(&mut net.pipes[0].fate, Box::new(|_, _| Fate::Pass));
    let sent = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = sent.clone();
    net = net.fate(0, move |n, s| {
        if s.payload.0 > 0 {
            log.borrow_mut().push((s.seq.0 - 5001) as u64 / 1000);
        }
        judge(n, s)
    });
    net.ends[0].offer(60_000);
    let mut lines = Vec::new();
    while net.ends[0].acknowledged() < 60_000 && net.step() {
        let numbers = core::mem::take(&mut *sent.borrow_mut());
        if !numbers.is_empty() && net.ends[0].counters().duplicate_acks > 0 {
            let (at, cwnd) = (net.now.as_nanos() / 1_000_000, net.ends[0].controller().congestion_window().0);
            let numbers: Vec<String> = numbers.iter().map(|n| format!("{n}")).collect();
            lines.push(format!("{at} cwnd {cwnd} sends {}", numbers.join(" ")));
        }
    }
    (net, lines)
}

#[test]
fn three_losses_in_a_window_silence_reno_until_the_timer_and_acks_then_jump() {
    let (net, lines) = path(net2(), &[15, 17, 19]);
    let counters = net.ends[0].counters();
    assert_eq!(counters.timeouts, 1, "{lines:#?}");
    let at = |line: &String| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    let gaps: Vec<u64> = lines.windows(2).map(|w| at(&w[1]) - at(&w[0])).collect();
    let stall = *gaps.iter().max().unwrap();
    // 3 ticks once settled; without timestamps few samples have been taken, and it may still be 4.
    assert!((1000..=2000).contains(&stall), "{stall} ms of silence\n{lines:#?}");
    // Go back N from the first hole with one segment; the receiver has most of the rest, so ACKs jump.
    let restart = gaps.iter().position(|g| *g == stall).unwrap() + 1;
    assert!(lines[restart].contains("cwnd 1000 sends "), "{lines:#?}");
    assert!(counters.retransmissions < 8, "not all of the window again: {}", counters.retransmissions);
}

#[test]
fn a_single_loss_costs_reno_no_timeout() {
    for lost in [&[12][..], &[20], &[30]] {
        let lost: &'static [u64] = Vec::leak(lost.to_vec());
        let (net, lines) = path(net2(), lost);
        assert_eq!(
            (net.ends[0].counters().timeouts, net.ends[0].counters().retransmissions),
            (0, 1),
            "{lines:#?}"
        );
    }
}

#[test]
fn after_a_timeout_the_threshold_is_half_and_the_window_one_segment() {
    let mut p = opened(net2(), 8, 0);
    p.state();
    p.at(1499);
    assert_eq!(p.state(), "cwnd 8 ssthresh - sends", "3 ticks after the handshake's sample");
    p.at(1500);
    assert_eq!(p.state(), "cwnd 1 ssthresh 4 sends 0");
    p.at(4499);
    assert_eq!(p.state(), "cwnd 1 ssthresh 4 sends");
    p.at(4500);
    assert_eq!(p.state(), "cwnd 1 ssthresh 2 sends 0", "6 ticks later; half of one segment is at least two");
    let got = rows(&mut p, &[5, 6, 7, 8]);
    assert_table(
        &got,
        "ack 5: cwnd 2 ssthresh 2 sends 5 6
         ack 6: cwnd 3 ssthresh 2 sends 7 8
         ack 7: cwnd 3.458 ssthresh 2 sends 9
         ack 8: cwnd 3.872 ssthresh 2 sends 10",
    ); // 333 + 125, 289 + 125
}

#[test]
fn tahoe_slow_starts_from_one_segment() {
    let mut p = opened(Stack { recovery: Kind::Tahoe, ..net2() }, 8, 0);
    p.state();
    let got = rows(&mut p, &[1, 1, 1, 1, 1, 1, 9, 10]);
    assert_table(
        &got[3..],
        "ack 1: cwnd 1 ssthresh 4 sends 1
         ack 1: cwnd 1 ssthresh 4 sends
         ack 1: cwnd 1 ssthresh 4 sends
         ack 9: cwnd 2 ssthresh 4 sends 9 10
         ack 10: cwnd 3 ssthresh 4 sends 11 12",
    );
    let (net, _) = path(Stack { recovery: Kind::Tahoe, ..net2() }, &[15]);
    assert_eq!(net.ends[0].counters().timeouts, 0);
}
