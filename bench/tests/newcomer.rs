//! docs/architecture.md claims that a controller is one file and one line, and shows one. Here a newcomer does what the page
//! says, in a copy of the crates a run needs: the page's code, as it stands there, compiles and carries a flow.
//!
//! The copy lives under the target directory and is updated in place, so that only the first time builds what the crates
//! depend on.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../docs/architecture.md");

const SCENARIO: &str = r#"
[run]
duration = "10s"
[[host]]
name = "a"
[[host]]
name = "b"
[[link]]
from = "a"
to = "b"
rate = "10Mbit/s"
delay = "5ms"
queue = "fifo:50p"
[[flow]]
name = "bulk"
from = "a"
to = "b"
controller = { name = "aimd", decrease = 0.7 }
"#;

/// Runs the scenario beside it; says how it went in three numbers.
const MAIN: &str = r#"
fn main() {
    let scenario = narrows_lab::file::parse("newcomer.toml", include_str!("../newcomer.toml")).unwrap_or_else(|e| panic!("{e}"));
    let outcome = narrows_sim::run(&scenario, 1, &mut narrows_lab::host::Unwatched).unwrap_or_else(|e| panic!("{}", e.message));
    let flow = &outcome.flows[0];
    println!("{} {} {} {}", flow.controller, flow.goodput_bps, flow.fast_retransmits, flow.rto_count);
}
"#;

/// The first Rust block of the section.
fn code_of_the_page() -> &'static str {
    let (_, section) = PAGE.split_once("\n## Adding a controller\n").expect("the page has the section");
    let section = section.split("\n## ").next().unwrap();
    let (_, block) = section.split_once("```rust\n").expect("the section shows code");
    block.split_once("```").expect("the block ends").0
}

#[test]
fn a_newcomer_adds_a_controller_in_under_100_lines_and_one_registry_line() {
    let code = code_of_the_page();
    assert!(code.lines().count() < 100, "{} lines", code.lines().count());

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let copy = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("newcomer");
    let registry = Path::new("core/src/congestion/mod.rs");
    for part in ["core", "lab", "sim"] {
        mirror(&root.join(part), &copy.join(part), &root.join(registry));
    }
    put(&copy.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock")).unwrap());
    put(&copy.join("Cargo.toml"), &workspace(&fs::read_to_string(root.join("Cargo.toml")).unwrap()));

    // What the page asks for: the file, and it named twice in the registry's.
    put(&copy.join("core/src/congestion/aimd.rs"), code);
    let edited = fs::read_to_string(root.join(registry)).unwrap();
    let edited = once(&edited, "pub mod reno;", "pub mod aimd;\npub mod reno;");
    let edited = once(&edited, "REGISTRY: &[Entry] = &[", "REGISTRY: &[Entry] = &[aimd::ENTRY, ");
    put(&copy.join(registry), &edited);

    put(&copy.join("run/Cargo.toml"), RUN);
    put(&copy.join("run/newcomer.toml"), SCENARIO);
    put(&copy.join("run/src/main.rs"), MAIN);
    let said = cargo(&copy, &["run", "--quiet", "-p", "newcomer"]);
    let [controller, goodput, fast_retransmits, rto_count] = said.split_whitespace().collect::<Vec<_>>()[..]
    else {
        panic!("three numbers behind a name: {said}")
    };
    assert_eq!(controller, "aimd");
    let goodput: f64 = goodput.parse().unwrap();
    assert!((5e6..10e6).contains(&goodput), "a flow alone uses most of 10 Mbit/s: {goodput}");
    assert_ne!(fast_retransmits, "0", "it probes until the queue overflows, and reduces: {said}");
    assert_eq!(rto_count, "0", "{said}");

    // The page promises that the test over all controllers runs it.
    let said = cargo(&copy, &["test", "--quiet", "-p", "narrows-core", "--lib", "congestion::tests"]);
    assert!(said.contains("test result: ok"), "{said}");
}

const RUN: &str = r#"
[package]
name = "newcomer"
edition.workspace = true

[dependencies]
narrows-lab.workspace = true
narrows-sim.workspace = true
"#;

/// The workspace's manifest for the copied crates: built to be built quickly, and strict, as the house is.
fn workspace(manifest: &str) -> String {
    let start = manifest.find("members = ").unwrap();
    let end = manifest.find("[workspace.package]").unwrap();
    let profiles = manifest.find("[profile.").unwrap();
    let members = "members = [\"core\", \"lab\", \"sim\", \"run\"]\n\n";
    let quick = "[profile.dev]\ndebug = false\n[profile.dev.package.narrows-core]\nopt-level = 1\n";
    let copied = [&manifest[..start], members, &manifest[end..profiles], quick].concat();
    once(&copied, "missing_docs = \"warn\"", "missing_docs = \"deny\"")
}

fn once(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} stands once in:\n{text}");
    text.replace(from, to)
}

/// Makes `to` a copy of `from` but for one file, touching only what differs.
fn mirror(from: &Path, to: &Path, but: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|e| (e.path(), e.file_name())).unwrap();
        if path.is_dir() {
            mirror(&path, &to.join(name), but)
        } else if path != but {
            put_bytes(&to.join(name), &fs::read(&path).unwrap())
        }
    }
}

fn put(path: &Path, text: &str) {
    put_bytes(path, text.as_bytes());
}

fn put_bytes(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// What cargo says on its standard output, in the copy; fails with what it says on the other.
fn cargo(copy: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--offline")
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .output()
        .expect("cargo runs: it runs this test");
    assert!(output.status.success(), "cargo {arguments:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
