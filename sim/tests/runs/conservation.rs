//! What goes in comes out, is dropped and counted, or is still there; and no line carries more than its rate.

use super::{SCENARIOS, Tap, chain, run, watched};
use narrows_lab::Outcome;

/// Bytes that waited on a line at the end of the run.
fn backlog(o: &Outcome, line: &str) -> u64 {
    o.series(line, "backlog").and_then(|s| s.points.last()).map_or(0, |p| p.1 as u64)
}

#[test]
fn every_line_gives_what_it_got_but_for_drops_and_what_waits() {
    for (name, text) in SCENARIOS {
        let o = run(&format!("{text}\n[record]\nqueues = true\n"), 1);
        for q in &o.queues {
            let waiting = q.arrived - q.departed - q.drops;
            let bytes = backlog(&o, &q.name);
            let mtu = if name == "becc" { 4352 } else { 1500 };
            assert!(
                waiting * mtu >= bytes && waiting <= bytes,
                "{name} {}: {waiting} packets wait in {bytes} bytes",
                q.name
            );
            assert_eq!(q.drops, q.drops_by_reason.values().sum::<u64>(), "{name} {}", q.name);
            assert_eq!(q.delay.count, q.departed, "{name} {}: each packet's wait is counted", q.name);
        }
    }
}

#[test]
fn a_line_cut_off_in_the_middle_holds_exactly_what_is_missing() {
    // 20 Mbit/s into 10 Mbit/s: after 1 s about half of it, 833 packets, waits in the router.
    let text = chain(
        "duration = \"1s\"\n[record]\nqueues = true",
        "rate = \"100Mbit/s\"\ndelay = \"1ms\"",
        "rate = \"10Mbit/s\"\ndelay = \"1ms\"\nqueue = \"fifo:1000p\"",
        &["transport = \"udp\"\nrate = \"20Mbit/s\"\npacket = \"1500B\""],
    );
    let o = run(&text, 1);
    let q = &o.queues[2];
    assert_eq!((q.arrived - q.departed - q.drops) * 1500, backlog(&o, "r>b"));
    assert!((830..=836).contains(&(backlog(&o, "r>b") / 1500)), "{}", backlog(&o, "r>b"));
}

#[test]
fn a_flow_that_has_run_dry_sent_what_arrived_and_what_was_lost() {
    let first = "rate = \"100Mbit/s\"\ndelay = \"1ms\"";
    let second = "rate = \"10Mbit/s\"\ndelay = \"5ms\"\nqueue = { kind = \"loss\", probability = 0.01, inner = \"fifo:20p\" }";
    let tcp = "name = \"bulk\"\nwindow = \"1MiB\"\ncount = 3\nstop = \"5s\"";
    let udp = "name = \"datagrams\"\ntransport = \"udp\"\nrate = \"3Mbit/s\"\npacket = \"700B\"\non = [[\"1s\", \"4s\"]]";
    let mut tap = Tap::default();
    let o = watched(&chain("duration = \"200s\"", first, second, &[tcp, udp]), 1, &mut tap);
    for q in &o.queues {
        assert_eq!(q.arrived, q.departed + q.drops, "{}: nothing waits", q.name);
    }
    for (i, f) in o.flows.iter().enumerate() {
        let of_flow = |line| tap.data(line).filter(|s| s.flow == i as u32).count() as u64;
        assert_eq!(f.segments_sent, of_flow(0), "{}: what it sent, left", f.name);
        assert!(f.lost > 0 && f.segments_sent > 500, "{}: {} of {} lost", f.name, f.lost, f.segments_sent);
        // Losses are counted of all packets; those without data (SYN, a last FIN) are few.
        let lost = f.segments_sent - of_flow(2);
        assert!(
            lost <= f.lost && f.lost <= lost + 10,
            "{}: {lost} segments are missing, {} lost",
            f.name,
            f.lost
        );
    }
    let datagrams = o.flow("datagrams").unwrap();
    assert_eq!(
        datagrams.segments_sent,
        datagrams.delivered_bytes / (700 - 28) + datagrams.lost,
        "to the packet"
    );
}

#[test]
fn no_line_carries_more_than_its_rate() {
    for (name, text) in SCENARIOS {
        let o = run(text, 1);
        for q in &o.queues {
            // The last packet counts whole when it begins to leave.
            let one = 4352.0 / q.departed_bytes.max(1) as f64;
            assert!(q.utilisation <= 1.0 + one, "{name} {}: {}", q.name, q.utilisation);
        }
    }
    let o = run(SCENARIOS[0].1, 1);
    let bottleneck = o.queues.iter().find(|q| q.name == "r>receiver").unwrap();
    assert!(bottleneck.departed_bytes as f64 * 8.0 <= 20e6 * o.ended_at_s + 1500.0 * 8.0);
    assert!(bottleneck.departed_bytes as f64 * 8.0 > 0.8 * 20e6 * o.ended_at_s, "and it is in use");
}

#[test]
fn every_byte_delivered_crossed_the_last_line() {
    for (name, text) in SCENARIOS {
        let o = run(text, 1);
        let delivered: u64 = o.flows.iter().map(|f| f.delivered_bytes).sum();
        let carried: u64 = o.queues.iter().map(|q| q.departed_bytes).max().unwrap();
        assert!(delivered > 0 && delivered < carried, "{name}: {delivered} {carried}");
    }
}
