//! What `run` prints and writes: documented keys, whole files, and nothing after Ctrl-C or on a full disk.

use super::{Folder, LONG, SMALL, json, keys, narrows, run, skipped, stderr, stdout};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn json_of_a_run_has_the_documented_keys() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let o = json(
        &folder,
        &["run", "small.toml", "--seeds", "4", "--set", "flow.bulk.size=2MB", "--format", "json"],
    );
    let of_run =
        "delivered_packets ended_at_s flows given host notes queues scenario seed trace_hash version";
    assert_eq!(keys(&o).join(" "), of_run);
    assert_eq!((&o["scenario"], &o["host"], &o["seed"]), (&"small".into(), &"sim".into(), &4.into()));
    assert_eq!(o["given"]["flow.bulk.size"], "2MB");
    let [bulk, datagrams] = o["flows"].as_array().unwrap().as_slice() else { panic!("{o}") };
    let of_flow = "name controller goodput_bps delivered_bytes started_at_s finished_at_s completed \
        segments_sent retransmissions retransmit_ratio rto_count fast_retransmits ecn_reductions lost rtt_min_s \
        rtt_p05_s rtt_p50_s rtt_p95_s rtt_p99_s rtt_max_s rtt_mean_s stall_time_s stalls";
    for key in of_flow.split(' ') {
        assert!(bulk.get(key).is_some() && datagrams.get(key).is_some(), "{key}: {bulk}");
    }
    assert_eq!((&bulk["delivered_bytes"], &bulk["completed"]), (&2_000_000.into(), &true.into()));
    assert_eq!(o["queues"].as_array().unwrap().len(), 4);
    let of_queue = "name arrived departed departed_bytes drops drops_by_reason marks utilisation \
        backlog_max_bytes backlog_mean_packets delay_min_s delay_p05_s delay_p50_s delay_p95_s delay_p99_s delay_max_s \
        delay_mean_s";
    for key in of_queue.split(' ') {
        assert!(o["queues"][2].get(key).is_some(), "{key}: {}", o["queues"][2]);
    }
    assert_eq!(o["queues"][2]["name"], "r>b");
}

#[test]
fn several_runs_are_a_list_in_the_order_of_sweep_and_seeds() {
    let folder = Folder::new();
    folder.file("small.toml", format!("{SMALL}[sweep]\n\"flow.bulk.size\" = [\"100kB\", \"200kB\"]\n"));
    let all = json(&folder, &["run", "small.toml", "--seeds", "3..5", "--format", "json"]);
    let runs = all["runs"].as_array().unwrap();
    let order: Vec<_> = runs
        .iter()
        .map(|r| (r["given"]["flow.bulk.size"].as_str().unwrap(), r["seed"].as_u64().unwrap()))
        .collect();
    assert_eq!(order, [("100kB", 3), ("100kB", 4), ("100kB", 5), ("200kB", 3), ("200kB", 4), ("200kB", 5)]);
}

#[test]
fn text_of_a_run_names_flows_queues_and_the_trace() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let output = run(&folder, &["run", "small.toml"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    for word in ["small seed 1", "trace ", "bulk", "Mbit/s", "r>b", "done at"] {
        assert!(stdout(&output).contains(word), "{word}: {}", stdout(&output));
    }
    assert_eq!(folder.files(), ["small.toml"], "without -o nothing is written");
}

#[test]
fn a_folder_gets_every_table_figure_capture_and_the_page_and_nothing_else() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let output = run(&folder, &["run", "small.toml", "-o", "out/here", "--pcap", "all"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("report: out/here/index.html"), "{}", stderr(&output));
    let files = folder.files();
    for table in ["flows", "queues", "series", "events"] {
        for kind in ["csv", "parquet"] {
            assert!(files.contains(&format!("out/here/{table}.{kind}")), "{table}.{kind}: {files:?}");
        }
    }
    assert!(
        files.contains(&"out/here/index.html".into()) && files.contains(&"out/here/small.pcapng".into()),
        "{files:?}"
    );
    assert!(files.iter().any(|f| f.starts_with("out/here/figures/") && f.ends_with(".svg")), "{files:?}");
    assert!(!files.iter().any(|f| f.contains("partial")), "{files:?}");
    let page = fs::read_to_string(folder.0.join("out/here/index.html")).unwrap();
    assert!(page.contains("narrows run small.toml -o out/here --pcap all"), "the command that repeats it");
    let again = run(&folder, &["run", "small.toml", "-o", "out/here", "--pcap", "all"]);
    assert_eq!((again.status.code(), folder.files()), (Some(0), files), "and once more over what is there");
}

#[test]
fn several_runs_get_a_capture_each() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let output = run(&folder, &["run", "small.toml", "--seeds", "1..3", "-o", "out", "--pcap", "r>b"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let captures: Vec<_> = folder.files().into_iter().filter(|f| f.ends_with(".pcapng")).collect();
    assert_eq!(captures, ["out/small-0001.pcapng", "out/small-0002.pcapng", "out/small-0003.pcapng"]);
}

#[test]
fn ctrl_c_ends_a_long_run_with_130_and_no_file() {
    let folder = Folder::new();
    folder.file("long.toml", LONG);
    let args = ["run", "long.toml", "-o", "out", "--pcap", "all"];
    let mut tool = narrows()
        .current_dir(&folder.0)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !folder.files().iter().any(|f| f.ends_with(".partial")) {
        assert!(began.elapsed() < Duration::from_secs(60), "the capture never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &tool.id().to_string()]).status().unwrap().success());
    while tool.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(90) {
            tool.kill().unwrap();
            panic!("Ctrl-C was not heard");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = tool.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(stderr(&output).trim(), "interrupted: no file is left half-written");
    assert_eq!((stdout(&output), folder.files()), ("", vec!["long.toml".to_string()]));
    assert!(!folder.0.join("out").exists(), "not even the folder");
}

#[test]
fn a_disk_that_fills_up_gives_one_error_and_leaves_no_half_file() {
    // A limit on the size of files stands in for the disk: any user may set it, and it strikes in the middle of a write.
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let limited = |kib: u32, args: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {kib}; exec {} {args}", env!("CARGO_BIN_EXE_narrows"));
        Command::new("bash")
            .args(["-c", &script])
            .current_dir(&folder.0)
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    };
    for args in ["run small.toml -o out --pcap all", "run small.toml -o out"] {
        let output = limited(32, args);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("cannot be written") && said.contains("make room") && !said.contains("panicked"),
            "{said}"
        );
        assert_eq!(said.matches('×').count(), 1, "{said}");
        let left = folder.files();
        assert!(
            !left.iter().any(|f| f.contains("partial") || f.ends_with(".pcapng") || f.ends_with(".html")),
            "{left:?}"
        );
    }
}

#[test]
fn a_tiny_file_system_gives_one_error_and_leaves_no_half_file() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let script = format!(
        "mkdir out && mount -t tmpfs -o size=64k none out || exit 99; {} run small.toml -o out; code=$?; find out; exit $code",
        env!("CARGO_BIN_EXE_narrows")
    );
    let run = Command::new("unshare").args(["--mount", "sh", "-c", &script]).current_dir(&folder.0).output();
    let Some(output) = run.ok().filter(|o| ![Some(99), Some(1)].contains(&o.status.code())) else {
        return skipped("no right to mount");
    };
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    // Long lines are wrapped.
    let said = stderr(&output).replace("\n  │", "");
    assert!(said.contains("cannot be written: No space left on device"), "{said}");
    assert!(
        !stdout(&output).contains("partial") && !stdout(&output).contains("index.html"),
        "{}",
        stdout(&output)
    );
}
