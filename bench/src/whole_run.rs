//! Runs a scenario file with traces off and says how many packets it delivered per CPU-second: the figure that can be
//! compared between simulators, unlike events.

use cpu_time::ProcessTime;
use narrows_lab::file::Document;
use narrows_lab::host::Unwatched;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("write: whole-run SCENARIO.toml [REPETITIONS]")?;
    let repetitions: u32 = std::env::args().nth(2).map_or(Ok(1), |n| n.parse())?;
    let scenario = Document::read(&path)?.scenario()?;
    for _ in 0..repetitions {
        let before = ProcessTime::now();
        let outcome = narrows_sim::run(&scenario, 1, &mut Unwatched)?;
        let cpu = before.elapsed().as_secs_f64();
        // Data packets delivered to the receiving application, as the other simulators count them.
        let data: u64 = outcome.flows.iter().map(|f| f.delivered_bytes.div_ceil(1448)).sum();
        let flow = &outcome.flows[0];
        println!(
            "{:.3} CPU-s, {data} data packets delivered, {:.0} per CPU-second; {} drops, goodput {:.3} Mbit/s, rto {}, \
             rtt p50 {:.2} ms, peak memory {}, trace hash {:016x}",
            cpu,
            data as f64 / cpu,
            flow.lost,
            flow.goodput_bps * 1e-6,
            flow.rto_count,
            flow.rtt.p50 * 1e3,
            peak_memory().unwrap_or_else(|| "unknown".into()),
            outcome.trace_hash
        );
    }
    Ok(())
}

/// The largest resident set of this process so far, where Linux tells it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: f64 =
        status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.1} MiB", kib / 1024.0))
}
