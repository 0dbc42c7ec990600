//! One scenario, one seed, one trace hash: in a debug build and in a release build.

use super::{Folder, json, skipped, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The binary of the other profile beside the one under test, if there is one.
fn release() -> Option<PathBuf> {
    let ours = Path::new(env!("CARGO_BIN_EXE_narrows"));
    Some(ours.parent()?.parent()?.join("release/narrows")).filter(|p| p.is_file() && p != ours)
}

#[test]
fn debug_and_release_make_the_same_runs() {
    let Some(release) = release() else {
        return skipped("there is no release build (cargo build --release)");
    };
    let newest = |p: &Path| p.metadata().and_then(|m| m.modified()).unwrap();
    let sources = ["core/src", "lab/src", "sim/src"].map(|f| Path::new(ROOT).join(f));
    if sources.iter().flat_map(|f| walk(f)).any(|f| newest(&f) > newest(&release)) {
        return skipped("the release build is older than the sources (cargo build --release)");
    }
    let folder = Folder::new();
    for name in ["reno", "becc", "random-loss", "cross-traffic", "route-change", "aqm"] {
        let file = format!("{ROOT}/sim/tests/scenarios/{name}.toml");
        let args = ["run", &file, "--seeds", "1..3", "--format", "json"];
        let ours = json(&folder, &args);
        let theirs = Command::new(&release).args(args).output().unwrap();
        assert!(theirs.status.success(), "{}", stderr(&theirs));
        let theirs: serde_json::Value = serde_json::from_slice(&theirs.stdout).unwrap();
        assert_eq!(ours, theirs, "{name}: to the last digit");
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}
