//! Numbers that can be had without a simulator.

use super::{pair, run};

/// Relative distance.
fn off(measured: f64, expected: f64) -> f64 {
    (measured - expected).abs() / expected
}

#[test]
fn a_flow_bound_by_its_window_moves_one_window_per_round_trip() {
    for (segments, delay_ms) in [(1u64, 10u64), (4, 50), (10, 50), (10, 200)] {
        let link = format!("rate = \"1Gbit/s\"\ndelay = \"{delay_ms}ms\"");
        let flow = format!(
            "stack = {{ name = \"rfc\", delayed_ack = \"none\" }}\nwindow = \"{}B\"",
            segments * 1448
        );
        let o = run(&pair("duration = \"120s\"", &link, &[&flow]), 1);
        // A full segment takes 12 us on the line, its ACK of 52 bytes 0.4 us.
        let rtt = 2.0 * delay_ms as f64 * 1e-3 + 12e-6 + 0.416e-6;
        let expected = segments as f64 * 1448.0 * 8.0 / rtt;
        // The handshake's round trip and the last, incomplete one are missing.
        assert!(
            off(o.flows[0].goodput_bps, expected) < 2.5 * rtt / 120.0,
            "{segments} {delay_ms}: {} {expected}",
            o.flows[0].goodput_bps
        );
        assert_eq!(o.flows[0].retransmissions, 0);
        assert!(off(o.flows[0].rtt.p50, rtt) < 2e-3, "{}", o.flows[0].rtt.p50);
    }
}

#[test]
fn a_flow_with_window_to_spare_fills_the_line_but_for_headers() {
    let o = run(
        &pair(
            "duration = \"60s\"",
            "rate = \"10Mbit/s\"\ndelay = \"5ms\"\nqueue = \"fifo:1000p\"",
            &["window = \"100kB\""],
        ),
        1,
    );
    assert!(off(o.flows[0].goodput_bps, 10e6 * 1448.0 / 1500.0) < 2e-3, "{}", o.flows[0].goodput_bps);
    assert!(o.queues[0].utilisation > 0.998, "{}", o.queues[0].utilisation);
}

/// Utilisation of a line of 24 Mbit/s and 100 ms (200 packets) under one Reno flow with this buffer, after it has settled.
fn reno_utilisation(buffer: &str) -> f64 {
    let link = format!("rate = \"24Mbit/s\"\ndelay = \"50ms\"\nqueue = \"fifo:{buffer}\"");
    let flow = "stack = { name = \"rfc\", delayed_ack = \"none\" }\nwindow = \"4MiB\"";
    let carried = |seconds: u32| {
        run(&pair(&format!("duration = \"{seconds}s\""), &link, &[flow]), 1).queues[0].departed_bytes
    };
    // What the first 100 s carry, slow start and its losses, is taken off.
    (carried(700) - carried(100)) as f64 * 8.0 / (24e6 * 600.0)
}

#[test]
fn reno_fills_a_line_whose_buffer_is_one_bandwidth_delay_product() {
    let used = reno_utilisation("1BDP");
    assert!((0.99..=1.0).contains(&used), "{used}");
}

#[test]
fn reno_without_a_buffer_uses_three_quarters_of_the_line() {
    // The window swings between half and all of 200 packets: 3/4 of the line. The buffer holds the one packet by which the
    // window grows per round trip; a fast retransmit's round trip costs up to 1 in 100.
    let used = reno_utilisation("2p");
    assert!((0.72..=0.77).contains(&used), "{used}");
}

#[test]
fn of_two_sources_in_step_one_waits_for_the_other() {
    // Two sources in step, each with a packet per 2 ms, before a line that takes 1 ms for one: the second waits for the first.
    let udp = "transport = \"udp\"\nrate = \"6Mbit/s\"\npacket = \"1500B\"";
    let o = run(&pair("duration = \"10s\"", "rate = \"12Mbit/s\"\ndelay = \"1ms\"", &[udp, udp]), 1);
    let q = &o.queues[0];
    assert!(off(q.delay.mean, 0.5e-3) < 1e-3 && off(q.delay.max, 1e-3) < 1e-3, "{:?}", q.delay);
    assert!((q.utilisation - 1.0).abs() < 1e-3, "{}", q.utilisation);
}
