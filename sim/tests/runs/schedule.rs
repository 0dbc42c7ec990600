//! What the scenario's clock does: starts, stops, schedules, changes of a line, the list of packets to lose, and the end.

use super::{SCENARIOS, Tap, chain, pair, run, watched};
use narrows_core::Time;
use std::time::Duration;

const LINK: &str = "rate = \"100Mbit/s\"\ndelay = \"1ms\"";

#[test]
fn a_shorter_way_lets_no_packet_overtake() {
    // A packet per 0.5 ms; at 10 s the way becomes 26 ms shorter.
    let first = "rate = \"100Mbit/s\"\ndelay = \"14ms\"\nchange = [{ at = \"5s\", delay = \"40ms\" }, { at = \"10s\", delay = \"14ms\" }]";
    let udp = "transport = \"udp\"\nrate = \"16Mbit/s\"\npacket = \"1000B\"";
    let mut tap = Tap::default();
    let o = watched(&chain("duration = \"15s\"", first, LINK, &[udp]), 1, &mut tap);
    let seen: Vec<u64> = tap.data(2).map(|s| s.number).collect();
    assert!(seen.windows(2).all(|w| w[1] == w[0] + 1), "in order, none missing");
    assert!(tap.0.windows(2).all(|w| w[0].at <= w[1].at), "time never goes back");
    assert_eq!(o.queues[0].drops + o.queues[2].drops, 0);
    // How long number `n` took from line to line.
    let took = |n: u64| {
        let at = |line| tap.data(line).find(|s| s.number == n).unwrap().at;
        at(2).since(at(0)).as_secs_f64()
    };
    let transmission = 80e-6;
    for (n, delay) in
        [(100, 14e-3), (9_990, 14e-3), (10_010, 40e-3), (19_990, 40e-3), (20_100, 14e-3), (25_000, 14e-3)]
    {
        assert!((took(n) - delay - transmission).abs() < 1e-6, "{n}: {}", took(n));
    }
}

#[test]
fn a_tcp_flow_over_a_changing_way_sees_no_reordering() {
    let link = "rate = \"20Mbit/s\"\ndelay = \"14ms\"\nqueue = \"fifo:1000p\"\n\
        change = [{ at = \"5s\", delay = \"40ms\" }, { at = \"10s\", delay = \"14ms\" }]";
    let o = run(&pair("duration = \"15s\"", link, &["window = \"200kB\""]), 1);
    assert_eq!((o.flows[0].retransmissions, o.flows[0].fast_retransmits, o.flows[0].rto_count), (0, 0, 0));
    assert!(o.flows[0].rtt.max > 0.080 && o.flows[0].rtt.min < 0.030, "{:?}", o.flows[0].rtt);
}

#[test]
fn exactly_the_packets_of_the_list_are_lost() {
    let link = "rate = \"100Mbit/s\"\ndelay = \"1ms\"\nqueue = { kind = \"loss\", packets = [3, 9, 10, 200], inner = \"fifo:100p\" }";
    let udp = "transport = \"udp\"\nrate = \"12Mbit/s\"\npacket = \"1500B\"\non = [[\"0s\", \"1s\"]]";
    let mut tap = Tap::default();
    let o = watched(&pair("duration = \"2s\"", link, &[udp]), 1, &mut tap);
    let seen: Vec<u64> = tap.data(0).map(|s| s.number + 1).collect();
    assert_eq!(seen, (1..=1000).filter(|n| ![3, 9, 10, 200].contains(n)).collect::<Vec<_>>());
    assert_eq!(
        (o.flows[0].lost, o.queues[0].drops_by_reason.get("listed")),
        (4, Some(&4)),
        "{:?}",
        o.queues[0].drops_by_reason
    );
}

#[test]
fn one_lost_segment_is_sent_once_more_and_by_fast_retransmit() {
    let link = "rate = \"100Mbit/s\"\ndelay = \"10ms\"\nqueue = { kind = \"loss\", packets = [100], inner = \"fifo:1000p\" }";
    let o = run(&pair("duration = \"60s\"", link, &["window = \"100kB\"\nsize = \"1MB\""]), 1);
    let f = &o.flows[0];
    assert_eq!((f.lost, f.retransmissions, f.fast_retransmits, f.rto_count), (1, 1, 1, 0));
    assert!(
        f.completed && f.delivered_bytes == 1_000_000 && f.segments_sent == 1_000_000u64.div_ceil(1448) + 1
    );
}

#[test]
fn datagrams_leave_as_many_as_rate_and_schedule_say() {
    for (rate, packet, on, expected) in [
        ("12Mbit/s", 1500, "[[\"0s\", \"3s\"], [\"6s\", \"9s\"]]", 6000),
        ("1Mbit/s", 125, "[[\"500ms\", \"600ms\"]]", 100),
        ("8kbit/s", 1000, "[[\"0s\", \"1s\"]]", 1),
    ] {
        let udp = format!("transport = \"udp\"\nrate = \"{rate}\"\npacket = \"{packet}B\"\non = {on}");
        let o = run(&pair("duration = \"10s\"", LINK, &[&udp]), 1);
        let f = &o.flows[0];
        assert_eq!(
            (f.segments_sent, f.delivered_bytes, f.lost),
            (expected, expected * (packet - 28), 0),
            "{rate}"
        );
        assert!(f.completed, "{rate}");
    }
}

#[test]
fn start_stop_count_and_stagger() {
    let mut tap = Tap::default();
    let flow =
        "name = \"bulk\"\ncount = 3\nstagger = \"300ms\"\nstart = \"1s\"\nstop = \"4s\"\nwindow = \"64KiB\"";
    let o = watched(&pair("duration = \"10s\"", LINK, &[flow]), 1, &mut tap);
    let names: Vec<&str> = o.flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["bulk-1", "bulk-2", "bulk-3"]);
    for (i, f) in o.flows.iter().enumerate() {
        let start = Time::from_millis(1000 + 300 * i as u64);
        assert_eq!(f.started_at_s, start.as_secs_f64());
        let first = tap.0.iter().find(|s| s.flow == i as u32).unwrap();
        // Behind what the flows before it have put into the line's queue: at most two windows.
        assert!(
            first.at >= start && first.at <= start + Duration::from_millis(11),
            "{}: {:?}",
            f.name,
            first.at
        );
        assert!(f.delivered_bytes > 1_000_000, "{}", f.delivered_bytes);
    }
    assert_eq!(tap.0[0].at, Time::from_millis(1000), "the first SYN leaves at once");
    let last = tap.data(0).map(|s| s.at).max().unwrap();
    // What it had put into the window is still sent; the link's queue and a round trip pass, not more.
    assert!(last > Time::from_millis(3_990) && last < Time::from_millis(4_100), "{last:?}");
}

#[test]
fn the_run_ends_with_the_last_flow_that_has_a_size() {
    let o = run(SCENARIOS.iter().find(|(name, _)| *name == "cross-traffic").unwrap().1, 1);
    let transfer = o.flow("transfer").unwrap();
    assert!(transfer.completed && transfer.delivered_bytes == 4_000_000);
    assert_eq!(o.ended_at_s, transfer.finished_at_s, "datagrams do not hold it");
    assert!(o.ended_at_s < 10.0);

    let sizes = ["size = \"100kB\"", "size = \"10MB\"\nstart = \"2s\""];
    let o = run(&pair("duration = \"60s\"", LINK, &sizes), 1);
    assert!(o.flows.iter().all(|f| f.completed));
    assert_eq!(o.ended_at_s, o.flows[1].finished_at_s);
    assert!(o.flows[0].finished_at_s < 1.0 && o.ended_at_s > 2.8, "{}", o.ended_at_s);
}

#[test]
fn an_endless_flow_beside_a_sized_one_keeps_the_run_going() {
    let o = run(&pair("duration = \"5s\"", LINK, &["size = \"100kB\"", "window = \"64KiB\""]), 1);
    assert_eq!(o.ended_at_s, 5.0);
    assert!(o.flows[0].completed && !o.flows[1].completed);
}

#[test]
fn a_run_that_is_told_to_stop_returns_what_it_has_seen() {
    struct Impatient(u32);
    impl narrows_lab::host::Watch for Impatient {
        fn progress(&mut self, now: Time, end: Time) -> bool {
            assert!(now <= end);
            self.0 += 1;
            self.0 < 3
        }
    }
    let o = watched(&pair("duration = \"3600s\"", LINK, &["window = \"64KiB\""]), 1, &mut Impatient(0));
    assert!(o.ended_at_s > 0.0 && o.ended_at_s < 600.0, "{}", o.ended_at_s);
    assert!(o.delivered_packets > 10_000);
}

#[test]
fn a_flow_with_a_kernel_controller_is_not_run_with_another_one() {
    let text = r#"
        run = { duration = "1s" }
        host = [{ name = "a" }, { name = "b" }]
        link = [{ from = "a", to = "b", rate = "1Mbit/s", delay = "1ms" }]
        flow = [{ name = "bulk", from = "a", to = "b", kernel_controller = "cubic" }]
    "#;
    let scenario = narrows_lab::file::parse("kernel.toml", text).unwrap();
    let refused = narrows_sim::run(&scenario, 1, &mut narrows_lab::host::Unwatched).unwrap_err();
    assert_eq!(refused.path, "flow.bulk.kernel_controller");
    assert!(refused.message.contains("on host linux"), "{}", refused.message);
}
