//! Numbers from outside that the whole must agree with.

use super::net::{Fate, Net};
use super::puppet::Puppet;
use super::*;
use crate::wire::tcp::Payload;

/// Mean window in segments of a sender that loses exactly every `period`-th data segment, its ACKs delayed or not: delivered
/// segments times round trip, over time.
fn mean_window(period: u64, ack_every: u32) -> f64 {
    let delayed_ack = if ack_every == 1 { DelayedAck::None } else { DelayedAck::After(ms(200)) };
    let stack = Stack { delayed_ack, ack_every, ..plain(rfc()) };
    let side = Config {
        receive_buffer: Bytes(1 << 22),
        send_buffer: Bytes(1 << 22),
        reads_at_once: true,
        ..config(stack)
    };
    let mut data = 0;
    // Growth per ACK, not per byte: what the formula's b means.
    let ends =
        [Tcp::connect(side.clone(), reno_with(0, true, false)), Tcp::listen(side, reno_with(0, true, false))];
    let mut net = Net::<Length>::of(ends).fate(0, move |_, s| {
        data += (s.payload.len() > 0) as u64;
        if data > 0 && data % period == 0 && s.payload.len() > 0 { Fate::Lose } else { Fate::Pass }
    });
    net.ends[0].offer(1 << 40);
    let cycles = |n: u64| Time::from_millis(n * 100 * 4 * libm::sqrt(period as f64) as u64);
    net.run(cycles(5));
    let (start, before) = (net.now, net.ends[0].acknowledged());
    net.run(cycles(40));
    let segments = (net.ends[0].acknowledged() - before) as f64 / MSS as f64;
    assert_eq!(net.ends[0].counters().timeouts, 0);
    segments * 0.1 / net.now.since(start).as_secs_f64()
}

#[test]
fn mathis_a_window_of_sqrt_3_over_2bp_under_periodic_loss() {
    // M. Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997.
    for (period, ack_every, mathis) in
        [(1000, 1, 38.7), (10_000, 1, 122.5), (1000, 2, 27.4), (10_000, 2, 86.6)]
    {
        let window = mean_window(period, ack_every);
        std::println!("1/p {period} b {ack_every}: {window:.1} against {mathis}");
        assert!(
            (window / mathis - 1.0).abs() < 0.1,
            "1/p {period} b {ack_every}: {window:.1} against {mathis}"
        );
    }
}

#[test]
fn slow_start_from_10_reaches_20_when_5_acks_acknowledge_10_packets() {
    // Linux's packetdrill scripts: tcp/slow_start.
    let mut p = Puppet::new(config(plain(rfc())));
    p.write(100_000);
    assert_eq!(p.state(), "cwnd 10 ssthresh - sends 0 1 2 3 4 5 6 7 8 9");
    let windows = [2, 4, 6, 8, 10].map(|n| p.ack(n * 1000).tcp.controller().congestion_window().0 / 1000);
    assert_eq!(windows, [12, 14, 16, 18, 20]);
    assert_eq!(p.tcp.in_flight(), 20_000);
}
