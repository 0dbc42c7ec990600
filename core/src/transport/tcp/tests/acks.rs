use super::puppet::Puppet;
use super::*;
use crate::wire::tcp::{Flags, Timestamps};

fn puppet(stack: Stack) -> Puppet {
    Puppet::new(Config { reads_at_once: true, ..config(stack) })
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    for stack in [net2(), rfc()].map(plain) {
        let mut p = puppet(stack);
        for i in 0..6 {
            p.data(i * 1000, 1000);
        }
        assert_eq!(p.sent(), [". 2000", ". 4000", ". 6000"]);
    }
}

#[test]
fn bsd_acknowledges_a_lone_segment_at_the_next_fast_tick() {
    for (phase, came, tick) in [(0, 210, 400), (0, 399, 400), (0, 400, 600), (50, 260, 450), (1250, 260, 450)]
    {
        let mut p = Puppet::new(Config { timer_phase: ms(phase), ..config(plain(net2())) });
        p.at(came).data(0, 500).at(1000);
        assert_eq!(p.sent_at(), [std::format!("{tick} . 500")], "phase {phase}, came at {came}");
    }
}

#[test]
fn the_standards_acknowledge_a_lone_segment_after_a_time() {
    let mut p = puppet(plain(rfc()));
    p.at(210).data(0, 500).at(230).data(500, 200).at(1000);
    assert_eq!(p.sent_at(), ["250 . 700"], "40 ms after the first");
}

#[test]
fn without_delay_every_segment_is_acknowledged() {
    let mut p = puppet(Stack { delayed_ack: DelayedAck::None, ..plain(rfc()) });
    p.data(0, 10).data(10, 10);
    assert_eq!(p.sent(), [". 10", ". 20"]);
}

#[test]
fn an_ack_of_every_fourth_segment_can_be_asked_for() {
    let mut p = puppet(Stack { ack_every: 4, ..plain(rfc()) });
    for i in 0..8 {
        p.data(i * 1000, 1000);
    }
    assert_eq!(p.sent(), [". 4000", ". 8000"]);
}

#[test]
fn out_of_order_segments_and_those_that_fill_a_hole_are_acknowledged_at_once() {
    let mut p = puppet(plain(net2()));
    p.data(1000, 1000).data(2000, 1000).data(4000, 1000);
    assert_eq!(p.sent(), [". 0", ". 0", ". 0"], "RFC 5681 section 4.2: duplicates at once");
    p.data(0, 500);
    assert_eq!(p.sent(), [". 500"], "it fills a part of the hole");
    p.data(500, 500);
    assert_eq!(p.sent(), [". 3000"]);
    p.data(3000, 1000);
    assert_eq!(p.sent(), [". 5000"], "the last hole");
    p.data(5000, 500);
    assert!(p.sent().is_empty(), "in order again: delayed");
}

#[test]
fn old_segments_are_acknowledged_at_once_and_overlaps_are_taken_in_part() {
    let mut p = Puppet::new(config(plain(rfc())));
    p.data(0, 1000).data(1000, 1000);
    p.sent();
    p.data(0, 1000);
    assert_eq!((p.sent(), p.tcp.readable()), (std::vec![". 2000".into()], 2000));
    p.data(1500, 1000);
    assert_eq!(p.tcp.readable(), 2500);
    p.data(3000, 500).data(2000, 2000);
    assert_eq!(p.tcp.readable(), 4000);
    let all = p.tcp.read(5000);
    assert!(all.is_piece(0));
}

#[test]
fn a_data_segment_carries_the_pending_ack() {
    let mut p = puppet(plain(rfc()));
    p.data(0, 500);
    p.write(100);
    assert_eq!(p.out[0].1.ack, Seq(super::puppet::PEER + 1 + 500));
    p.at(900);
    assert_eq!(p.sent(), ["0:100"], "no other follows");
}

#[test]
fn a_delayed_ack_echoes_the_earlier_of_its_segments() {
    let mut p = puppet(rfc());
    let stamp = |value| Some(Timestamps { value, echo: 1 });
    p.stamp = stamp(10);
    p.data(0, 988);
    p.stamp = stamp(20);
    p.data(988, 988);
    let echo =
        |p: &mut Puppet| core::mem::take(&mut p.out).last().unwrap().1.options.timestamps.unwrap().echo;
    assert_eq!(echo(&mut p), 10, "RFC 7323 section 4.3");
    p.stamp = stamp(30);
    p.data(2964, 988);
    assert_eq!(echo(&mut p), 10, "out of order: the last in-order segment's (case B)");
    p.stamp = stamp(40);
    p.data(1976, 988);
    assert_eq!(echo(&mut p), 40, "the segment that fills the hole (case C)");
}

#[test]
fn paws_rejects_a_segment_with_an_older_timestamp_but_not_after_24_days() {
    let mut p = puppet(rfc());
    let stamp = |value| Some(Timestamps { value, echo: 1 });
    p.stamp = stamp(1000);
    p.data(0, 100);
    p.stamp = stamp(999);
    p.sent();
    p.data(100, 100);
    assert_eq!((p.tcp.delivered(), p.tcp.counters().paws_rejected), (100, 1));
    assert_eq!(p.sent(), [". 100"], "RFC 7323 section 5.3 R1: an ACK answers it");
    p.stamp = stamp(1000);
    p.data(100, 100);
    assert_eq!(p.tcp.delivered(), 200, "equal is not older");
    p.at(100); // acknowledged: the next one's value becomes TS.Recent
    p.stamp = stamp(0x8000_0000 + 1000 - 1);
    p.data(200, 100);
    assert_eq!(p.tcp.delivered(), 300, "newer, modulo 2^32");
    p.at(200).stamp = stamp(16);
    p.data(300, 100);
    assert_eq!(p.tcp.delivered(), 400, "and so is 16 after 2^31 + 999");
    p.stamp = stamp(5);
    p.now = Time::from_millis(25 * 24 * 3600 * 1000);
    p.data(400, 100);
    assert_eq!(p.tcp.delivered(), 500, "section 5.5: idle for 24 days");
}

#[test]
fn paws_lets_a_reset_pass() {
    let mut p = puppet(rfc());
    p.stamp = Some(Timestamps { value: 1000, echo: 1 });
    p.data(0, 100);
    p.stamp = Some(Timestamps { value: 1, echo: 0 });
    p.says(p.segment(Flags::RST, 0));
    assert_eq!(p.tcp.state(), State::Closed);
}

#[test]
fn an_ack_for_what_was_never_sent_is_answered_and_changes_nothing() {
    let mut p = puppet(plain(rfc()));
    p.write(1000);
    p.sent();
    p.ack(1001);
    assert_eq!((p.sent(), p.tcp.una(), p.tcp.counters().unacceptable), (std::vec![". 0".into()], 0, 1));
}

#[test]
fn bsd_times_every_ack_by_its_echo_and_the_timestamp_clock_is_the_slow_timer() {
    let mut p = Puppet::new(Config { timer_phase: ms(120), ..config(net2()) });
    let value = |p: &mut Puppet| core::mem::take(&mut p.out)[0].1.options.timestamps.unwrap().value;
    p.at(600).write(100);
    let first = value(&mut p);
    p.at(630).ack(100).write(100);
    assert_eq!(value(&mut p), first + 1, "tcp_now advances in tcp_slowtimo: at 120 and 620 ms");
}
