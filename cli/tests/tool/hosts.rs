//! The same scenario in virtual time and on real packets. Real packets need root, and time: runs of a second or two.

use crate::{Folder, json, keys, narrows, run, skipped, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// 20 Mbit/s, 20 ms, a buffer of one BDP: the first slow start overshoots it.
const PATH: &str = r#"[run]
duration = "2s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r"
[[link]]
from = "a"
to = "r"
rate = "1Gbit/s"
delay = "1ms"
[[link]]
from = "r"
to = "b"
rate = "20Mbit/s"
delay = "9ms"
queue = "fifo:1BDP"
"#;
const BULK: &str = r#"[[flow]]
name = "bulk"
from = "a"
to = "b"
controller = "reno"
"#;
const DATAGRAMS: &str = r#"[[flow]]
name = "noise"
from = "b"
to = "a"
transport = "udp"
rate = "5Mbit/s"
packet = "1000B"
"#;

/// Whether there can be real packets here.
fn real_packets() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    let possible = root && Path::new("/dev/net/tun").exists();
    if !possible {
        skipped("real packets need root and /dev/net/tun");
    }
    possible
}

/// What a machine busy with other things spoils in real time is tried again, three times at the most.
pub(super) fn unless_spoilt(attempt: impl Fn() -> Result<(), String>) {
    let mut failures = Vec::new();
    while let Err(failure) = attempt() {
        eprintln!("once more: {failure}");
        failures.push(failure);
        assert!(failures.len() < 4, "{failures:#?}");
    }
}

fn scenario(folder: &Folder, flows: &[&str]) {
    folder.file("s.toml", format!("{PATH}{}", flows.concat()));
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Series and their units, as the tables name them.
fn series(folder: &Folder, host: &str) -> BTreeSet<String> {
    let output = run(folder, &["run", "s.toml", "--on", host, "-o", host]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = fs::read_to_string(folder.0.join(host).join("series.csv")).unwrap();
    let mut lines = table.lines().map(|l| l.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let at = |name| head.iter().position(|h| *h == name).unwrap();
    let columns = [at("subject"), at("quantity"), at("unit")];
    lines.map(|l| columns.map(|c| l[c]).join(" ")).collect()
}

#[test]
fn where_nothing_is_lost_all_hosts_see_the_same_to_a_few_percent() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK, DATAGRAMS]);
    let room = ["--set", "link.r>b.queue=fifo:1000p", "--set", "flow.bulk.window=100kB"];
    let args = [&["compare", "s.toml", "--on", "sim,wire,linux", "--format", "json"][..], &room].concat();
    unless_spoilt(|| all_see_the_same(&json(&folder, &args)));
}

fn all_see_the_same(comparison: &Value) -> Result<(), String> {
    let mut seen = 0;
    for row in comparison["points"][0]["rows"].as_array().unwrap() {
        // Within so much of the simulator, which is exact: the machine is not.
        let tolerance = match (row["subject"].as_str(), row["metric"].as_str().unwrap()) {
            (Some("bulk" | "noise"), "goodput") => 0.05,
            (Some("bulk"), "rtt_p50" | "rtt_p95") => 0.10,
            (Some("r>b"), "queue_delay_p50" | "queue_delay_p95") => 0.15,
            (Some("bulk"), "rto_count" | "retransmit_ratio" | "stalls") => 0.0,
            _ => continue,
        };
        seen += 1;
        let exact = number(&row["values"]["sim"]);
        for host in ["wire", "linux"] {
            let real = number(&row["values"][host]);
            if (real - exact).abs() > tolerance * exact {
                return Err(format!("{host}: {row}"));
            }
        }
    }
    assert_eq!(seen, 9, "{comparison}");
    Ok(())
}

#[test]
fn every_host_records_the_same_series_and_linux_two_more() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK]);
    let sim = series(&folder, "sim");
    assert!(sim.contains("bulk cwnd B") && sim.contains("r>b backlog B"), "{sim:?}");
    let more = |host: &str| series(&folder, host).symmetric_difference(&sim).cloned().collect::<Vec<_>>();
    let idle = ["b>r backlog B", "b>r backlog_packets p"]; // whether ACKs ever wait for each other is chance
    let without_idle = |mut names: Vec<String>| {
        names.retain(|n| !idle.contains(&n.as_str()));
        names
    };
    assert_eq!(without_idle(more("wire")), Vec::<String>::new());
    assert_eq!(without_idle(more("linux")), ["bulk pacing_rate bit/s", "bulk srtt s"]);
}

#[test]
fn our_tcp_does_in_real_time_what_it_does_in_the_simulator() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK]);
    let goodput = |args: &[&str]| {
        let outcome = json(&folder, &[&["run", "s.toml", "--format", "json"], args].concat());
        let flow = &outcome["flows"][0];
        assert!(number(&flow["retransmissions"]) > 10.0, "the buffer overflows: {flow}");
        (outcome["host"].as_str().unwrap().to_string(), number(&flow["goodput_bps"]), keys(flow).join(" "))
    };
    let (sim, exact, names) = goodput(&[]);
    assert_eq!(sim, "sim");
    for end in ["receiver", "none"] {
        unless_spoilt(|| {
            let (host, real, same) = goodput(&["--on", "wire", "--kernel-end", end]);
            assert_eq!((host.as_str(), &same), ("wire", &names));
            let near = (real - exact).abs() < 0.15 * exact;
            near.then_some(()).ok_or_else(|| format!("{end}: {real} for {exact}"))
        });
    }
}

#[test]
fn a_run_ends_when_its_flows_have_and_runs_at_once_do_not_add_up() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK]);
    let size = ["--set", "flow.bulk.size=1MB", "--set", "run.duration=30s"];
    let began = Instant::now();
    let args = [
        &["run", "s.toml", "--on", "linux", "--seeds", "1..4", "--jobs", "4", "--format", "json"][..],
        &size,
    ]
    .concat();
    let runs = json(&folder, &args);
    for outcome in runs["runs"].as_array().unwrap() {
        assert_eq!(outcome["flows"][0]["completed"], true, "{outcome}");
        assert_eq!(outcome["flows"][0]["delivered_bytes"], 1_000_000, "{outcome}");
        assert!(number(&outcome["ended_at_s"]) < 3.0, "0.4 s at full rate: {outcome}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_capture_of_real_packets_has_their_bytes() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK, DATAGRAMS]);
    let small = ["--set", "flow.bulk.size=100kB", "--set", "run.duration=200ms"];
    let args = [&["run", "s.toml", "--on", "linux", "-o", "out", "--pcap", "r>b"][..], &small].concat();
    let output = run(&folder, &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("s in real time on linux"), "{}", stdout(&output));
    let capture = fs::read(folder.0.join("out/s.pcapng")).unwrap();
    assert!(capture.len() > 100_000, "{} bytes: the data are in it", capture.len());
}

/// Starts what would take minutes, and waits until its namespaces are there.
fn long_run(folder: &Folder) -> Child {
    scenario(folder, &[BULK]);
    let args = ["run", "s.toml", "--on", "linux", "--set", "run.duration=100s", "-o", "out"];
    let mut command = narrows();
    let child = command.current_dir(&folder.0).args(args).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let began = Instant::now();
    while namespaces(child.id()).len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(20), "no namespaces were made");
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(300));
    child
}

/// The network namespaces a process holds, without the one it is in.
fn namespaces(pid: u32) -> BTreeSet<String> {
    let own =
        fs::read_link(format!("/proc/{pid}/ns/net")).map(|l| l.display().to_string()).unwrap_or_default();
    let held = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = held.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string()));
    links.filter(|l| l.starts_with("net:[") && *l != own).collect()
}

#[test]
fn ctrl_c_ends_a_real_run_at_once_and_leaves_no_file() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    let child = long_run(&folder);
    let began = Instant::now();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(folder.files(), ["s.toml"]);
}

#[test]
fn a_killed_run_leaves_no_namespace_no_device_and_no_process() {
    if !real_packets() {
        return;
    }
    let devices =
        || fs::read_dir("/sys/class/net").unwrap().map(|d| d.unwrap().file_name()).collect::<BTreeSet<_>>();
    let before = devices();
    let folder = Folder::new();
    let mut child = long_run(&folder);
    let made = namespaces(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Path::new(&format!("/proc/{}", child.id())).exists());
    let processes =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|p| p.file_name().to_str()?.parse().ok());
    for pid in processes {
        let inside = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default().display().to_string();
        assert!(!made.contains(&inside), "process {pid} lives on in {inside}");
        assert!(namespaces(pid).is_disjoint(&made), "process {pid} holds on to one of {made:?}");
    }
    assert!(
        devices().difference(&before).all(|d| !d.to_string_lossy().contains("narrows")),
        "{:?}",
        devices()
    );
}

#[test]
fn who_may_not_make_namespaces_is_told_what_to_do() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK]);
    let text = fs::read_to_string(folder.0.join("s.toml")).unwrap();
    // Where nobody may reach this folder, the scenario still can be handed over: as a file that everybody may read.
    let file = std::env::temp_dir().join(format!("narrows-hosts-{}.toml", std::process::id()));
    fs::write(&file, text).unwrap();
    let binary = std::env::temp_dir().join(format!("narrows-hosts-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_narrows"), &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", "--"])
        .args([&binary, Path::new("run"), &file, Path::new("--on"), Path::new("linux")])
        .output();
    let (_, _) = (fs::remove_file(&file), fs::remove_file(&binary));
    let Ok(output) = output else { return skipped("there is no setpriv") };
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("namespaces need root") && said.contains("--on sim"), "{said}");
}

#[test]
fn a_controller_that_the_kernel_lacks_is_refused_with_those_it_has() {
    if !real_packets() {
        return;
    }
    let folder = Folder::new();
    scenario(&folder, &[BULK]);
    let output =
        run(&folder, &["run", "s.toml", "--on", "linux", "--set", "flow.bulk.kernel_controller=nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("`nosuch`") && said.contains("reno"), "{said}");
}
