//! The tool as a user meets it: the binary, its exit codes, its words, its files.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod captures;
mod emulate;
mod gateway;
mod hosts;
#[cfg(feature = "kernel")]
mod kernel;
mod output;
mod refused;
mod repeat;
mod reproduced;
mod windows;
mod words;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test's own, removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Every file in it, hidden ones too, by its path from here; sorted.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, top: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
                if entry.is_dir() {
                    walk(&entry, top, found);
                } else {
                    found.push(entry.strip_prefix(top).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &self.0, &mut found);
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Two hosts, a router, a transfer of 1 MB and some datagrams beside it: 1 s of virtual time.
const SMALL: &str = r#"[run]
duration = "10s"
[[host]]
name = "a"
[[host]]
name = "b"
[[router]]
name = "r"
[[link]]
from = "a"
to = "r"
rate = "100Mbit/s"
delay = "1ms"
[[link]]
from = "r"
to = "b"
rate = "10Mbit/s"
delay = "5ms"
queue = "fifo:20p"
[[flow]]
name = "bulk"
from = "a"
to = "b"
size = "1MB"
[[flow]]
name = "datagrams"
from = "a"
to = "b"
transport = "udp"
rate = "1Mbit/s"
packet = "500B"
"#;

/// What keeps any machine busy for minutes.
const LONG: &str = r#"run = { duration = "100h" }
host = [{ name = "a" }, { name = "b" }]
link = [{ from = "a", to = "b", rate = "1Gbit/s", delay = "1ms" }]
flow = [{ from = "a", to = "b", window = "1MiB" }]
"#;

fn narrows() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
    command.env("NO_COLOR", "1");
    command
}

/// Says what a test could not look at, past the test runner, which shows nothing of tests that pass.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Runs the tool in `folder`.
fn run(folder: &Folder, args: &[&str]) -> Output {
    narrows().current_dir(&folder.0).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Runs the tool, which must succeed, and reads the JSON it prints.
#[track_caller]
fn json(folder: &Folder, args: &[&str]) -> Value {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(&output)))
}

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
