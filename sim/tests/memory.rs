//! Memory stays bounded: ten minutes of a hundred flows, everything recorded. A binary of its own, since it reads the peak of the
//! whole process.
#![allow(clippy::unwrap_used)]

use narrows_lab::file;
use narrows_lab::host::Unwatched;
use narrows_lab::outcome::{RUN_POINTS, SERIES_POINTS};

/// Events kept at most, of all flows together.
const EVENTS: usize = 1_000_000;
/// Peak resident memory: 16 bytes for each of `RUN_POINTS` and some more while they thin out, and the events.
const PEAK: u64 = 512 << 20;

/// The most memory this process has had, in bytes; `None` where /proc does not say.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|k| k << 10)
}

#[test]
fn ten_minutes_of_a_hundred_flows_stay_within_bounds() {
    let text = r#"
        run = { duration = "600s" }
        record = { flows = true, queues = true, rate_interval = "100ms" }
        host = [{ name = "a" }, { name = "b" }]
        link = [{ from = "a", to = "b", rate = "100Mbit/s", delay = "10ms", queue = "fifo:200p" }]
        flow = [{ name = "bulk", from = "a", to = "b", count = 100, window = "256KiB" }]
    "#;
    let scenario = file::parse("memory.toml", text).unwrap();
    let o = narrows_sim::run(&scenario, 1, &mut Unwatched).unwrap();
    assert!(o.delivered_packets > 4_000_000, "{}", o.delivered_packets);
    let longest = o.series.iter().map(|s| s.points.len()).max().unwrap();
    assert!(longest <= SERIES_POINTS && longest > 1000, "{longest}");
    assert!(o.events.len() <= EVENTS, "{}", o.events.len());
    assert!(
        o.events_omitted == 0 || o.events.len() > EVENTS / 2,
        "{} omitted although only {} are kept",
        o.events_omitted,
        o.events.len()
    );
    let points: usize = o.series.iter().map(|s| s.points.len()).sum();
    // The flows' series, and the queues'.
    assert!(points <= 2 * RUN_POINTS, "{points}");
    let peak = peak();
    println!(
        "{} packets, {} series with {points} points, {} events, {} omitted, peak {peak:?} bytes",
        o.delivered_packets,
        o.series.len(),
        o.events.len(),
        o.events_omitted
    );
    assert!(peak.is_none_or(|peak| peak <= PEAK), "{peak:?}");
}
