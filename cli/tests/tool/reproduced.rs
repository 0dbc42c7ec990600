//! `reproduce` and `claims` over a paper of one scenario: verdicts, their JSON, and the exit code when one has changed.

use super::{Folder, SMALL, json, keys, run, stderr, stdout};

/// A paper whose first claim holds, whose second differs, and what is recorded of both.
fn paper(folder: &Folder, first: &str, second: &str) {
    let claims = format!(
        r#"[paper]
title = "On small networks"
authors = ["A. Body"]
year = 2026
short = "small"
seeds = "1..2"
[[claim]]
id = "small.delivers"
source = "Fig. 1"
text = "The transfer fills the line"
read_from = "text"
reported = "9 Mbit/s"
accept = ["5 Mbit/s", "10 Mbit/s"]
scenario = "small.toml"
metric = "goodput"
flow = "bulk"
recorded = {{ sim = "{first}" }}
reason = "it was written down so"
[[claim]]
id = "small.flies"
source = "Fig. 2"
text = "It is faster than the line"
read_from = "plot"
reported = "20 Mbit/s"
accept = ["19 Mbit/s", "21 Mbit/s"]
scenario = "small.toml"
metric = "goodput"
flow = "bulk"
recorded = {{ sim = "{second}" }}
reason = "no line carries more than its rate"
"#
    );
    folder.file("papers/body-2026-small/claims.toml", claims);
    folder.file("papers/body-2026-small/small.toml", SMALL);
}

#[test]
fn verdicts_as_recorded_are_success_and_their_json_is_the_documented_one() {
    let folder = Folder::new();
    paper(&folder, "reproduced", "differs");
    let all = json(&folder, &["reproduce", "small", "--format", "json"]);
    assert_eq!(keys(&all), ["claims"]);
    let [first, second] = all["claims"].as_array().unwrap().as_slice() else { panic!("{all}") };
    for key in ["id", "host", "reported", "accept", "measured", "verdict", "reason"] {
        assert!(first[key].is_string() && second[key].is_string(), "{key}: {all}");
    }
    assert_eq!(
        (&first["id"], &first["host"], &first["verdict"]),
        (&"small.delivers".into(), &"sim".into(), &"reproduced".into())
    );
    assert_eq!(
        (&second["verdict"], &second["reason"]),
        (&"differs".into(), &"no line carries more than its rate".into())
    );
    assert!(first["measured"].as_str().unwrap().contains("Mbit/s"), "{first}");
    let files: Vec<_> = folder.files().into_iter().filter(|f| f.starts_with("out")).collect();
    assert_eq!(
        files,
        ["out/report/index.html", "out/report/small/claims.json", "out/report/small/index.html"]
    );
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.0.join("out/report/small/claims.json")).unwrap())
            .unwrap();
    assert_eq!(written, all);
}

#[test]
fn a_verdict_that_has_changed_is_exit_code_1_and_said() {
    let folder = Folder::new();
    paper(&folder, "differs", "differs");
    let output = run(&folder, &["reproduce"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output).trim(),
        "verdict changed: small.delivers on sim is reproduced, recorded differs"
    );
    assert!(
        stdout(&output).contains("reproduced  small.delivers")
            && stdout(&output).contains("report: out/report/index.html")
    );
}

#[test]
fn text_says_verdict_reported_measured_and_why() {
    let folder = Folder::new();
    paper(&folder, "reproduced", "differs");
    let output = run(&folder, &["reproduce", "body-2026-small", "-o", "elsewhere", "--seeds", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for words in [
        "On small networks (A. Body, 2026)",
        "differs",
        "reported 20 Mbit/s",
        "no line carries more than its rate",
        "elsewhere/index.html",
    ] {
        assert!(stdout(&output).contains(words), "{words}: {}", stdout(&output));
    }
}

#[test]
fn a_claim_about_what_its_scenario_has_not_is_refused_before_any_run() {
    let folder = Folder::new();
    paper(&folder, "reproduced", "differs");
    let path = folder.0.join("papers/body-2026-small/claims.toml");
    let claims = std::fs::read_to_string(&path).unwrap().replacen("flow = \"bulk\"", "flow = \"blk\"", 1);
    std::fs::write(&path, claims).unwrap();
    let output = run(&folder, &["reproduce"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("small.delivers") && stderr(&output).contains("blk"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.0.join("out").exists());
}
