//! Bad input: exit code 2, one error that says what to write instead, and nothing written.

use super::{Folder, SMALL, narrows, run, skipped, stderr, stdout};
use std::fs::{self, OpenOptions};
use std::process::{Output, Stdio};

/// Exactly one error, with these words; code 2; nothing on standard output.
#[track_caller]
pub fn refused(output: &Output, words: &[&str]) {
    // Long lines are wrapped for the terminal: compare words, not line ends.
    let said = stderr(output)
        .split(|c: char| c.is_whitespace() || c == '│')
        .filter(|w| !w.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(
        stderr(output).matches('×').count() + stderr(output).matches("error:").count(),
        1,
        "one error: {said}"
    );
    assert_eq!(stdout(output), "");
}

/// `SMALL` with one piece replaced is refused by `run`, and leaves nothing in the folder.
#[track_caller]
fn refused_file(old: &str, new: &str, words: &[&str]) {
    assert!(SMALL.contains(old), "{old}");
    let folder = Folder::new();
    folder.file("x.toml", SMALL.replacen(old, new, 1));
    refused(&run(&folder, &["run", "x.toml", "-o", "out", "--pcap", "all"]), words);
    assert_eq!(folder.files(), ["x.toml"]);
    assert!(!folder.0.join("out").exists());
}

#[test]
fn a_zero_rate() {
    refused_file("10Mbit/s", "0Mbit/s", &["nothing passes at rate zero", "x.toml", "10Mbit/s"]);
}

#[test]
fn a_negative_time() {
    refused_file("\"5ms\"", "\"-5ms\"", &["-5ms is negative", "10ms"]);
}

#[test]
fn a_number_without_a_unit() {
    refused_file("\"5ms\"", "5", &["5 has no unit", "\"5ms\""]);
}

#[test]
fn a_cycle_without_a_route() {
    let cycle = "[[router]]\nname = \"s\"\n[[router]]\nname = \"t\"\n[[link]]\nfrom = \"s\"\nto = \"t\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n\
        [[link]]\nfrom = \"t\"\nto = \"b\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n[[link]]\nfrom = \"b\"\nto = \"s\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n";
    let cut = SMALL.replace("to = \"b\"\nrate = \"10Mbit/s\"", "to = \"c\"\nrate = \"10Mbit/s\"")
        + "[[host]]\nname = \"c\"\n"
        + cycle;
    let folder = Folder::new();
    folder.file("x.toml", cut);
    refused(&run(&folder, &["run", "x.toml"]), &["no route from a to b", "only routers forward"]);
}

#[test]
fn a_buffer_smaller_than_a_packet() {
    refused_file("fifo:20p", "fifo:1kB", &["smaller than one packet", "1500B"]);
}

#[test]
fn a_thousand_million_flows() {
    refused_file("size = \"1MB\"", "count = 1000000000", &["1000000000 flows", "100000"]);
}

#[test]
fn an_unknown_controller_key_queue_and_node() {
    refused_file(
        "size = \"1MB\"",
        "controller = \"renno\"",
        &["unknown controller \"renno\"", "did you mean \"reno\"?"],
    );
    refused_file("delay = \"5ms\"", "dealy = \"5ms\"", &["unknown key \"dealy\"", "did you mean \"delay\"?"]);
    refused_file("fifo:20p", "fivo:20p", &["unknown queue \"fivo\"", "did you mean \"fifo\"?"]);
    refused_file("from = \"r\"", "from = \"rr\"", &["unknown node \"rr\"", "did you mean \"r\"?"]);
    refused_file("[run]", "[run", &["x.toml"]);
}

#[test]
fn keys_and_values_of_set() {
    let folder = Folder::new();
    folder.file("x.toml", SMALL);
    let set = |set: &str, words: &[&str]| {
        refused(&run(&folder, &["run", "x.toml", "-o", "out", "--set", set]), words)
    };
    set("flow.bulk.windwo=9kB", &["windwo", "did you mean"]);
    set("flow.blk.window=9kB", &["blk", "bulk"]);
    set("flow.bulk.window=9", &["9 has no unit"]);
    set("flow.bulk.controller.trigger=3", &["unknown parameter of reno \"trigger\""]);
    set("flow.bulk.window", &["has no `=`", "KEY=VALUE"]);
    set("nonsense=1", &["nonsense"]);
    assert_eq!(folder.files(), ["x.toml"]);
}

#[test]
fn files_that_are_none() {
    let folder = Folder::new();
    folder.file("latin1.toml", b"[run]\ntitle = \"Stra\xdfe\"\n");
    folder.file("empty.toml", "");
    folder.file("binary.toml", [0u8; 100]);
    fs::create_dir(folder.0.join("folder")).unwrap();
    let is = |file: &str, words: &[&str]| refused(&run(&folder, &["run", file]), words);
    is("none.toml", &["none.toml cannot be read", "check the name"]);
    is("folder", &["is a directory", "scenario file"]);
    is("latin1.toml", &["is not UTF-8: see line 2", "save it as UTF-8"]);
    is("empty.toml", &["there is no"]);
    is("binary.toml", &["binary.toml"]);
}

#[test]
fn one_bad_file_among_good_ones_and_nothing_is_run() {
    let folder = Folder::new();
    folder.file("good.toml", SMALL);
    folder.file("bad.toml", SMALL.replace("10Mbit/s", "0Mbit/s"));
    refused(&run(&folder, &["run", "good.toml", "bad.toml", "-o", "out"]), &["bad.toml", "rate zero"]);
    assert!(!folder.0.join("out").exists());
}

#[test]
fn a_file_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.file("x.toml", SMALL);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        return skipped("this user may read every file");
    }
    refused(&run(&folder, &["run", "x.toml"]), &["cannot be read", "permissions"]);
}

#[test]
fn seeds_lines_papers_and_words_that_do_not_exist() {
    let folder = Folder::new();
    folder.file("x.toml", SMALL);
    fs::create_dir(folder.0.join("papers")).unwrap();
    let is = |args: &[&str], words: &[&str]| refused(&run(&folder, args), words);
    is(&["run", "x.toml", "--seeds", "9..3"], &["9..3 is empty", "smaller seed first"]);
    is(&["run", "x.toml", "--seeds", "x"], &["`x` is no seed", "1..20"]);
    is(&["run", "x.toml", "--seeds", "0..999999999"], &["at most 100,000 seeds"]);
    is(&["run", "x.toml", "-o", "out", "--pcap", "r>x"], &["no line or node `r>x`", "a>r, r>a, r>b, b>r"]);
    is(&["run", "x.toml", "--pcap", "all"], &["--output"]);
    is(&["run"], &["FILES"]);
    is(&["list", "nonsense"], &["nonsense", "narrows list"]);
    is(&["reproduce", "nonsense"], &["unknown paper \"nonsense\""]);
    is(&["reproduce", "--papers", "nowhere"], &["nowhere"]);
    is(&["fly"], &["unrecognized subcommand 'fly'"]);
    assert_eq!(folder.files(), ["x.toml"]);
}

#[test]
fn a_place_for_output_that_cannot_be() {
    let folder = Folder::new();
    folder.file("x.toml", SMALL);
    refused(&run(&folder, &["run", "x.toml", "-o", "x.toml"]), &["x.toml cannot be written", "-o"]);
    refused(&run(&folder, &["run", "x.toml", "-o", "x.toml/below"]), &["cannot be written", "-o"]);
    assert_eq!(folder.files(), ["x.toml"]);
    assert_eq!(fs::read_to_string(folder.0.join("x.toml")).unwrap(), SMALL);
}

#[test]
fn a_standard_output_that_is_full_or_closed() {
    let folder = Folder::new();
    folder.file("x.toml", SMALL);
    let papers = concat!(env!("CARGO_MANIFEST_DIR"), "/../papers");
    let commands: [&[&str]; 6] = [
        &["run", "x.toml", "-o", "out"],
        &["run", "x.toml", "--format", "json"],
        &["list"],
        &["schema"],
        &["completions", "bash"],
        &["claims", "--papers", papers],
    ];
    for args in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            narrows().current_dir(&folder.0).args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        refused(&output, &["standard output cannot be written", "No space left"]);

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = narrows()
            .current_dir(&folder.0)
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(128 + 13), "as SIGPIPE would end it");
        assert!(output.stderr.is_empty(), "without a word");
    }
    assert_eq!(folder.files(), ["x.toml"], "what cannot be shown is not written either");
}
