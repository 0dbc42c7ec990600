use super::net::{Fate, Net};
use super::puppet::Puppet;
use super::*;
use crate::wire::tcp::{Flags, Payload};

fn puppet() -> Puppet {
    Puppet::new(config(plain(rfc())))
}

#[test]
fn a_closed_window_is_probed_with_one_byte_and_then_ever_more_rarely() {
    for (stack, first) in [(plain(net2()), 5000), (plain(rfc()), 1000)] {
        let mut p = Puppet::new(config(stack));
        p.window = 0;
        p.ack(0).write(3000).at(first - 1);
        assert!(p.sent().is_empty());
        let mut gaps = Vec::new();
        for _ in 0..20 {
            let before = p.now;
            let due = p.tcp.wake_at().unwrap();
            p.at(due.as_nanos() / 1_000_000);
            assert_eq!(p.sent(), ["0:1"], "one byte beyond the window");
            gaps.push((p.now.since(before).as_nanos() / 1_000_000_000) as u64);
            p.ack(0); // still closed
        }
        assert!(gaps.windows(2).all(|g| g[0] <= g[1]) && gaps[19] == 60, "{gaps:?}: to 60 s");
        assert_eq!((p.tcp.counters().window_probes, p.tcp.counters().retransmissions), (20, 0));
        // The window opens; 20 unanswered probes say nothing of the path, so losses now are repeated as on a fresh one.
        p.window = 60_000;
        p.ack(0);
        assert_eq!(p.sent()[0], "0:1000");
        let counted = p.tcp.counters();
        assert!(
            counted.segments_sent > 0 && counted.retransmissions == 0,
            "a probe is no segment sent: {counted:?}"
        );
        let (sent, due) = (p.now, p.tcp.wake_at().unwrap());
        assert!(due.since(sent) <= ms(3000), "the back-off of probing is over: {:?}", due.since(sent));
        p.at(due.as_nanos() / 1_000_000);
        assert_eq!((p.sent(), p.tcp.state()), (std::vec!["0:1000".into()], State::Established));
    }
}

#[test]
fn a_probe_that_is_taken_ends_probing_if_nothing_is_left() {
    let mut p = puppet();
    p.window = 0;
    p.ack(0).write(1).at(1000);
    assert_eq!(p.sent(), ["0:1"]);
    p.ack(1); // taken, though the window is still closed
    p.at(200_000);
    assert!(p.sent().is_empty());
    p.tcp.close();
    p.flush();
    assert_eq!(p.sent(), ["F 1"]);
    p.at(202_000);
    assert_eq!(p.sent(), ["F 1"], "and a lost FIN has its timer");
}

#[test]
fn a_lost_window_update_is_found_by_probing() {
    for stack in [net2(), rfc()] {
        // The receiver sleeps until 10 s; every pure ACK it sends then, until 11 s, is lost.
        let side = |stack| Config { receive_buffer: Bytes(8000), ..config(stack) };
        let mut net = Net::<Vec<u8>>::new(side(stack), side(stack)).transfer(30_000);
        net.apps[1].reads_from = Time::from_millis(10_000);
        net.run(Time::from_millis(9_990));
        assert_eq!(net.ends[0].peer_window(), Bytes(0));
        net.pipes[1].fate = Box::new(|_, _| Fate::Lose);
        net.run(Time::from_millis(10_500));
        assert!((8000..8010).contains(&net.apps[1].read), "a probe's byte may have been taken");
        net.pipes[1].fate = Box::new(|_, _| Fate::Pass);
        net.run(Time::from_millis(90_000));
        assert_eq!(net.apps[1].read, 30_000, "the probe asked again");
        assert!(net.ends[0].counters().window_probes > 0);
        net.finish();
    }
}

#[test]
fn a_peer_that_takes_its_window_back_to_zero_is_probed_and_not_given_up() {
    let mut p = puppet();
    p.write(5000);
    p.sent();
    p.window = 0;
    p.at(10).ack(1000);
    for t in 1..4000 {
        p.at(t * 1000);
        if !p.sent().is_empty() {
            p.ack(1000);
        }
    }
    assert_eq!(p.tcp.state(), State::Established, "RFC 9293 section 3.8.6.1: as long as it answers");
    p.window = 60_000;
    p.ack(1000);
    assert_eq!(p.sent()[..2], ["1000:2000", "2000:3000"]);
}

#[test]
fn no_partial_segment_leaves_while_data_is_outstanding() {
    let mut p = puppet();
    p.write(300);
    assert_eq!(p.sent(), ["0:300"], "nothing is outstanding");
    p.write(300).write(300);
    assert!(p.sent().is_empty(), "Nagle (RFC 896)");
    p.write(500);
    assert_eq!(p.sent(), ["300:1300"], "a full segment may go");
    p.at(50).ack(300);
    assert!(p.sent().is_empty());
    p.ack(1300);
    assert_eq!(p.sent(), ["1300:1400"]);
    p.write(200).tcp.close();
    p.flush();
    assert_eq!(p.sent(), ["F1400:1600"], "with the FIN the last piece goes at once");
}

#[test]
fn the_sender_does_not_fill_a_silly_window_before_the_persist_timer() {
    let mut p = puppet();
    p.window = 200; // of 60,000 at most: silly
    p.ack(0).write(5000).at(999);
    assert!(p.sent().is_empty(), "RFC 9293 section 3.8.6.2.1: 0.1 to 1 s");
    p.at(1000);
    assert_eq!(p.sent(), ["0:200"], "then what there is room for");
    p.window = 30_000;
    p.at(1050).ack(200);
    assert_eq!(p.sent()[0], "200:1200");
}

#[test]
fn half_of_the_largest_window_is_worth_sending() {
    let mut p = puppet();
    p.tcp.max_snd_wnd = 800;
    p.window = 400;
    p.ack(0).write(5000);
    assert_eq!(p.sent(), ["0:400"]);
}

#[test]
fn the_receiver_offers_no_silly_window() {
    let mut p = Puppet::new(Config { receive_buffer: Bytes(8000), ..config(plain(rfc())) });
    for i in 0..8 {
        p.data(i * 1000, 1000);
    }
    let window = |p: &mut Puppet| core::mem::take(&mut p.out).last().map(|(_, s)| s.window);
    p.at(100);
    assert_eq!(window(&mut p), Some(0), "the buffer is full");
    p.tcp.read(900);
    p.flush();
    assert_eq!(window(&mut p), None, "RFC 9293 section 3.8.6.2.2: not before it is worth a segment");
    p.data(8000, 1);
    assert_eq!((window(&mut p), p.tcp.readable()), (Some(0), 7100), "a probe learns nothing better");
    p.tcp.read(1100);
    p.flush();
    assert_eq!(window(&mut p), Some(2000), "two segments");
}

#[test]
fn the_offered_edge_never_moves_left() {
    // With the window scale unused, exactly; with it, by less than the scale's unit (RFC 7323 section 2.4), and what was once
    // offered is always taken.
    for (buffer, scale) in [(50_000, 0), (1 << 20, 5)] {
        let mut p = Puppet::new(Config { receive_buffer: Bytes(buffer), ..config(plain(rfc())) });
        p.tcp.rcv_scale = scale;
        let mut rng = crate::rng::Rng::new(buffer, 1);
        let (mut at, mut edge) = (0u64, 0u64);
        for _ in 0..4000 {
            let len = (1 + rng.below(1000)).min(p.tcp.advertised - at) as u32;
            p.data(at, len);
            at += len as u64;
            p.at(p.now.as_nanos() / 1_000_000 + rng.below(60));
            if rng.chance(0.5) {
                p.tcp.read(rng.below(2000) as u32);
                p.flush();
            }
            for (_, s) in core::mem::take(&mut p.out) {
                let acked = s.ack.0.wrapping_sub(super::puppet::PEER + 1) as u64;
                let right = acked + ((s.window as u64) << scale);
                assert!(right + (1 << scale) > edge, "{right} after {edge}");
                assert!(right <= p.tcp.read + buffer, "no more than the buffer holds");
                edge = edge.max(right);
            }
        }
        assert_eq!(p.tcp.delivered(), at, "all of it was within what had been offered");
        assert!(at > 100_000);
    }
}

#[test]
fn after_an_idle_timeout_the_window_starts_again() {
    for (stack, initial) in [(plain(net2()), 1), (plain(rfc()), 10)] {
        let mut net = Net::<Length>::new(config(stack), config(stack));
        net.ends[0].offer(60_000);
        net.run(Time::from_millis(1900));
        assert_eq!(net.ends[0].acknowledged(), 60_000);
        let grown = net.ends[0].controller().congestion_window();
        assert!(grown > Bytes(15_000), "{grown:?}");
        net.now = Time::from_millis(20_000);
        net.ends[0].offer(60_000);
        net.settle();
        assert_eq!(net.ends[0].in_flight(), initial * 1000, "RFC 5681 section 4.1");
    }
}

#[test]
fn a_short_pause_keeps_the_window() {
    let mut net = Net::<Length>::new(config(plain(rfc())), config(plain(rfc())));
    net.ends[0].offer(60_000);
    net.run(Time::from_millis(700));
    assert_eq!(net.ends[0].acknowledged(), 60_000);
    net.ends[0].offer(60_000);
    net.settle();
    assert!(net.ends[0].in_flight() > 15_000);
}

#[test]
fn no_more_than_the_peer_offered_is_ever_sent() {
    for (buffer, scale) in [(3000, false), (20_000, true), (200_000, true)] {
        let stack = Stack { window_scale: scale, ..rfc() };
        let b = Config { receive_buffer: Bytes(buffer), ..config(stack) };
        let net = Net::<Length>::new(config(stack), b).transfer(500_000);
        let mut net = net.storm(3, 0.01, 0.0, 0.02);
        net.apps[1].reads_from = Time::from_millis(3000);
        while net.ends[0].state() != State::Closed && net.step() {
            let (sender, receiver) = (&net.ends[0], &net.ends[1]);
            // A probe may be one byte beyond.
            assert!(sender.max() <= receiver.advertised.max(receiver.rcv_nxt) + 1 + sender.fin as u64);
        }
        assert_eq!(net.apps[1].read, 500_000);
    }
}

#[test]
fn what_lies_beyond_the_window_is_not_taken() {
    let mut p = Puppet::new(Config { receive_buffer: Bytes(3000), ..config(plain(rfc())) });
    p.data(2500, 1000);
    p.data(0, 1000);
    p.data(1000, 1000);
    assert_eq!(p.tcp.readable(), 2000);
    p.data(2000, 500);
    assert_eq!(p.tcp.readable(), 3000, "500 of the early segment were within");
    let ours = p.tcp.read(4000);
    assert!(ours.is_piece(0) && Payload::len(&ours) == 3000);
    p.seq = 90_000;
    p.sent();
    p.says(p.segment(Flags::ACK, 100));
    assert_eq!(
        (p.sent(), p.tcp.counters().unacceptable),
        (std::vec![". 3000".into()], 1),
        "far beyond: an ACK says where we are"
    );
}
