//! Claims on made-up runs: two controllers, three windows, two seeds.

use super::*;
use crate::outcome::{FlowSummary, Outcome};

const HEADER: &str =
    "[paper]\ntitle = \"T\"\nauthors = [\"A\"]\nyear = 1997\nshort = \"t\"\nseeds = \"1..2\"\n";
const CLAIM: &str = "\n[[claim]]\nid = \"t.1\"\nsource = \"Fig. 1\"\ntext = \"fast\"\nread_from = \"text\"\nreported = \"12 Mbit/s\"\n";
const RUN: &str = "scenario = \"s.toml\"\nmetric = \"goodput\"\nflow = \"bulk\"\n";

fn read(rest: &str) -> Result<Claims, Error> {
    Claims::read(Document { name: "claims.toml".into(), text: format!("{HEADER}{CLAIM}{rest}") })
}

fn complaint(rest: &str) -> String {
    let error = read(rest).unwrap_err();
    assert!(error.span().is_some(), "`{error}` points at the text");
    format!("{error}: {}", error.advice().unwrap_or_default())
}

/// Mbit/s: reno 10, 12, 11 at 100, 200, 300 kB; becc 20, 36, 22; the second seed 2 more everywhere.
fn outcomes() -> Vec<Outcome> {
    let mut all = Vec::new();
    for (controller, rates) in [("reno", [10.0, 12.0, 11.0]), ("becc", [20.0, 36.0, 22.0])] {
        for (rate, window) in rates.into_iter().zip(["100kB", "200kB", "300kB"]) {
            for seed in 1..=2 {
                let bulk = FlowSummary {
                    name: "bulk".into(),
                    goodput_bps: (rate + 2.0 * (seed - 1) as f64) * 1e6,
                    finished_at_s: 1.0,
                    rto_count: seed,
                    ..FlowSummary::default()
                };
                let given = [("flow.bulk.controller", controller), ("flow.bulk.window", window)];
                let given = given.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
                all.push(Outcome { seed, given, flows: vec![bulk], ..Outcome::default() });
            }
        }
    }
    all
}

fn judge(rest: &str) -> Judgement {
    let claims = read(rest).unwrap();
    let observed: Vec<_> = outcomes().iter().map(|o| claims.observe("s.toml", o)).collect();
    claims.judge("sim", &observed, &|name, a| (name == "double").then(|| 2.0 * a[0])).remove(0)
}

#[track_caller]
fn assert_value(judgement: &Judgement, want: f64) {
    let got = judgement.checks[0].value.unwrap_or_else(|| panic!("{}", judgement.reason));
    assert!((got - want).abs() < 1e-6 * want.abs().max(1e-3), "{got}, not {want}");
}

#[test]
fn a_mean_over_points_and_seeds_with_its_confidence_interval() {
    let j = judge(&format!(
        "accept = [\"8 Mbit/s\", \"15 Mbit/s\"]\nwhere = {{ \"flow.bulk.controller\" = \"reno\", \"flow.bulk.window\" = [\"0.15MB\", \"-\"] }}\n{RUN}"
    ));
    // 12, 14, 11, 13; by seed 11.5 and 13.5: t(1) x sqrt 2 / sqrt 2 = 12.706.
    assert_value(&j, 12.5e6);
    let c = &j.checks[0];
    assert_eq!((c.runs, c.seeds, c.spread), (4, 2, Some([11.5e6, 13.5e6])));
    assert!((c.half_width.unwrap() - 12.706e6).abs() < 1e3);
    assert_eq!((j.verdict, j.measured.as_deref()), (Verdict::Reproduced, Some("12.5 ± 13 Mbit/s")));
}

#[test]
fn the_json_has_the_documented_keys() {
    let j = judge(&format!(
        "accept = [\"1 Mbit/s\", \"2 Mbit/s\"]\nrecorded = {{ sim = \"reproduced\" }}\n{RUN}"
    ));
    let json = serde_json::to_value(&j).unwrap();
    assert_eq!(json["id"], "t.1");
    assert_eq!(json["host"], "sim");
    assert_eq!(json["reported"], "12 Mbit/s");
    assert_eq!(json["accept"], "1 Mbit/s to 2 Mbit/s");
    assert_eq!(json["verdict"], "differs");
    assert!(json["measured"].as_str().unwrap().ends_with("Mbit/s"));
    assert!(json["reason"].is_string() && j.changed(), "recorded as reproduced, and it is not");
}

#[test]
fn two_selections_are_compared_after_reducing() {
    let where_becc = "where = { \"flow.bulk.controller\" = \"becc\" }\n";
    let of = |how: &str| {
        format!("against = {{ where = {{ \"flow.bulk.controller\" = \"reno\" }}, as = \"{how}\" }}\n")
    };
    // Means 27 and 12.
    assert_value(&judge(&format!("accept = [2, 4]\n{where_becc}{}{RUN}", of("ratio"))), 2.25);
    assert_value(&judge(&format!("accept = [2, 4]\n{where_becc}{}{RUN}", of("relative"))), 1.25);
    assert_value(
        &judge(&format!("accept = [\"2 Mbit/s\", \"-\"]\n{where_becc}{}{RUN}", of("difference"))),
        15e6,
    );
}

#[test]
fn point_by_point_comparison_finds_what_the_mean_hides() {
    let rest = "accept = [\"-5 %\", \"5 %\"]\nreduce = \"farthest\"\nwhere = { \"flow.bulk.controller\" = \"becc\" }\nagainst = { where = { \"flow.bulk.controller\" = \"reno\" }, as = \"relative\", each = true }\n";
    // 21/11, 37/13, 23/12 minus 1: the second is farthest.
    let j = judge(&format!("{rest}{RUN}"));
    assert_value(&j, 37.0 / 13.0 - 1.0);
    assert_eq!(j.verdict, Verdict::Differs);
}

#[test]
fn a_list_of_comparisons_takes_the_gap_of_a_gap() {
    // (becc - reno at 200 kB) - (becc - reno at 100 kB) = 24 - 10.
    let rest = r#"accept = ["0 Mbit/s", "-"]
where = { "flow.bulk.controller" = "becc", "flow.bulk.window" = "200kB" }
against = [
  { as = "difference", where = { "flow.bulk.controller" = "reno" } },
  { as = "difference", where = { "flow.bulk.window" = "100 kB" }, against = { as = "difference", where = { "flow.bulk.controller" = "reno" } } },
]
"#;
    assert_value(&judge(&format!("{rest}{RUN}")), 14e6);
}

#[test]
fn a_curve_takes_the_one_key_that_varies_as_x() {
    let reno = "where = { \"flow.bulk.controller\" = \"reno\" }\n";
    assert_value(
        &judge(&format!("accept = [\"150 kB\", \"250 kB\"]\nreduce = \"knee\"\n{reno}{RUN}")),
        200e3,
    );
    let j = judge(&format!("accept = [\"150 kB\", \"250 kB\"]\nreduce = \"knee\"\n{RUN}"));
    assert!(j.verdict == Verdict::NotRun && j.reason.contains("say which is x"), "{}", j.reason);
    let j = judge(&format!(
        "accept = [\"150 kB\", \"250 kB\"]\nreduce = \"knee\"\nx = \"flow.bulk.window\"\n{RUN}"
    ));
    assert!(j.reason.contains("several points share flow.bulk.window"), "{}", j.reason);
}

#[test]
fn a_claim_with_several_checks_is_reproduced_when_all_hold() {
    let rest = format!(
        "accept = [\"10 Mbit/s\", \"-\"]\nalso = [{{ metric = \"rto_count\", reduce = \"max\", accept = [\"-\", 1] }}]\n{RUN}"
    );
    let j = judge(&rest);
    assert_eq!(
        j.checks.iter().map(|c| c.verdict).collect::<Vec<_>>(),
        [Verdict::Reproduced, Verdict::Differs]
    );
    assert_eq!((j.verdict, j.accept.as_str()), (Verdict::Differs, "at least 10 Mbit/s; at most 1"));
    assert!(j.measured.unwrap().ends_with("; 2"));
}

#[test]
fn what_cannot_be_measured_is_not_run_and_says_why() {
    let reason = |rest: &str| {
        let j = judge(rest);
        assert_eq!((j.verdict, j.measured), (Verdict::NotRun, None));
        j.reason
    };
    let band = "accept = [\"-\", \"9 s\"]\n";
    assert_eq!(
        reason(&format!("{band}scenario = \"other.toml\"\nmetric = \"completion_time\"\nflow = \"bulk\"\n")),
        "other.toml was not run"
    );
    assert_eq!(
        reason(&format!("{band}scenario = \"s.toml\"\nmetric = \"completion_time\"\nflow = \"bulk\"\n")),
        "completion_time is undefined in 12 of 12 runs: the transfer did not complete"
    );
    let none = reason(&format!(
        "accept = [\"-\", \"9 bit/s\"]\nwhere = {{ \"flow.bulk.window\" = \"7kB\" }}\n{RUN}"
    ));
    assert_eq!(none, "no run of s.toml has flow.bulk.window 7kB");
    assert_eq!(
        reason(&format!("accept = [\"-\", \"9 bit/s\"]\nhosts = [\"linux\"]\n{RUN}")),
        "the claim is for linux only"
    );
}

#[test]
fn the_code_itself_can_be_asked() {
    let j = judge("accept = [\"84 B\", \"84 B\"]\nmetric = \"code.double\"\narguments = [\"42 B\"]\n");
    assert_eq!(
        (j.verdict, j.measured.as_deref(), j.accept.as_str()),
        (Verdict::Reproduced, Some("84 B"), "84 B")
    );
    assert!(judge("accept = [1, 1]\nmetric = \"code.unknown\"\n").reason.contains("no answer to unknown"));
}

#[test]
fn mistakes_are_answered_with_what_to_write() {
    let band = "accept = [\"8 Mbit/s\", \"15 Mbit/s\"]\n";
    for (rest, says) in [
        (format!("accept = [\"15 Mbit/s\", \"8 Mbit/s\"]\n{RUN}"), "the smaller first"),
        (format!("accept = [\"8 Mbit/s\", \"15 s\"]\n{RUN}"), "different units"),
        (format!("accept = [\"8 s\", \"15 s\"]\n{RUN}"), "goodput, mean is in bit/s"),
        (format!("accept = [\"-\", \"-\"]\n{RUN}"), "give one of them"),
        (format!("accept = [\"8 apples\", \"15 s\"]\n{RUN}"), "8 apples"),
        (format!("{band}scenario = \"s.toml\"\nmetric = \"goodputt\"\n"), "did you mean \"goodput\"?"),
        (format!("{band}scenario = \"s.toml\"\nmetric = \"goodput\"\n"), "flow = \"bulk\""),
        (format!("{band}metric = \"goodput\"\nflow = \"bulk\"\n"), "scenario is missing"),
        (format!("{band}{RUN}window = [\"1s\", \"2s\"]\n"), "takes no `window`"),
        (format!("{band}{RUN}recorded = {{ sim = \"differs\" }}\n"), "write the reason"),
        (
            format!(
                "{band}{RUN}hosts = [\"sim\", \"wire\"]\nrecorded = {{ wire = \"differs\" }}\nreason = {{ sim = \"so\" }}\n"
            ),
            "reason = { wire =",
        ),
        (format!("{band}{RUN}recorded = {{ net = \"reproduced\" }}\n"), "host net"),
        (format!("{band}{RUN}colour = 3\n"), "unknown key \"colour\""),
        (format!("{band}{RUN}against = {{ how = \"ratio\" }}\n"), "unknown field `how`"),
        (format!("{band}{RUN}{CLAIM}{band}{RUN}"), "this id is taken"),
    ] {
        let message = complaint(&rest);
        assert!(message.contains(says), "`{message}` does not say `{says}`");
    }
}

#[test]
fn seeds_are_a_closed_range() {
    assert_eq!(read(&format!("accept = [\"-\", \"1 bit/s\"]\n{RUN}")).unwrap().paper.seeds, 1..=2);
    assert!(
        Claims::read(Document { name: "claims.toml".into(), text: HEADER.replace("1..2", "2..1") })
            .unwrap_err()
            .to_string()
            .contains("1..10")
    );
}
