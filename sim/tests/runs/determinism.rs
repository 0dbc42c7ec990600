//! The same scenario and seed give the same run, here and everywhere: the trace hash folds in every delivery and every drop.

use super::{SCENARIOS, Tap, run, watched};
use std::fmt::Write;

#[test]
fn a_scenario_and_a_seed_give_one_run() {
    for (name, text) in SCENARIOS {
        let (first, second) = (run(text, 7), run(text, 7));
        assert_eq!(first.trace_hash, second.trace_hash, "{name}");
        assert_eq!(first.flows, second.flows, "{name}");
        assert_eq!(first.queues, second.queues, "{name}");
    }
}

#[test]
fn another_seed_gives_another_run() {
    for (name, text) in SCENARIOS {
        assert_ne!(run(text, 1).trace_hash, run(text, 2).trace_hash, "{name}");
    }
}

#[test]
fn looking_on_and_recording_change_nothing() {
    for (name, text) in SCENARIOS {
        let plain = run(text, 3);
        let seen =
            watched(&format!("{text}\n[record]\nflows = true\nqueues = true\n"), 3, &mut Tap::default());
        assert_eq!(plain.trace_hash, seen.trace_hash, "{name}");
        assert!(plain.series.is_empty() && !seen.series.is_empty(), "{name}");
    }
}

#[test]
fn a_resolved_scenario_repeats_the_run_of_its_file() {
    for (name, text) in SCENARIOS {
        let resolved = narrows_lab::file::parse(name, text).unwrap().to_toml();
        assert_eq!(run(text, 5).trace_hash, run(&resolved, 5).trace_hash, "{name}");
    }
}

/// What a person reads first when a run has changed: which, and by how much. A change that is meant is written down with
/// `NARROWS_WRITE_HASHES=1 cargo test -p narrows-sim hashes`.
#[test]
fn the_hashes_are_those_of_the_table_on_every_machine() {
    let mut table = String::from(
        "# What small runs must give on every machine, debug or release: see runs/determinism.rs.\n\
         # scenario    seed  trace hash        delivered    drops\n",
    );
    for (name, text) in SCENARIOS {
        for seed in [1, 2] {
            let o = run(text, seed);
            let drops: u64 = o.queues.iter().map(|q| q.drops).sum();
            writeln!(
                table,
                "{name:<15} {seed:<5} {:016x} {:>10} {drops:>8}",
                o.trace_hash, o.delivered_packets
            )
            .unwrap();
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hashes.txt");
    if std::env::var_os("NARROWS_WRITE_HASHES").is_some() {
        return std::fs::write(path, table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        table, expected,
        "\nIf the change is meant: NARROWS_WRITE_HASHES=1 cargo test -p narrows-sim hashes"
    );
}
