use super::*;
use crate::plan::parse;
use crate::specimen;

const TIME: &str = r#"
    [[figure]]
    id = "fig4"
    title = "t"
    scenario = "trace.toml"
    kind = "time"
    where = { "flow.bulk.controller" = "reno" }
    stalls = "bulk"
    x = { label = "Time (ms)", scale = 1e3 }
    y = { label = "Sequence number (kbyte)", scale = 1e-3 }
    right = { label = "cwnd (kbyte)", scale = 1e-3 }
    layer = [
        { series = "bulk.seq_sent", style = "points", label = "sent" },
        { event = "bulk.drop", label = "lost" },
        { series = "bulk.cwnd", label = "cwnd", right = true, color = "purple" },
        { series = "bulk.seq_sent", style = "points", label = "BECC", where = { "flow.bulk.controller" = "becc" } },
    ]
"#;
const SWEEP: &str = r#"
    [[figure]]
    id = "fig10"
    title = "t"
    scenario = "fig10.toml"
    kind = "sweep"
    x = { key = "flow.bulk.window", label = "Window (kbyte)", scale = 1e-3 }
    y = { flow = "bulk", metric = "goodput_bps", label = "Throughput (Mbit/s)", scale = 1e-6 }
    curve = "flow.bulk.controller"
    curve_labels = { reno = "RE-TCP" }
"#;

fn draw(plan: &str, runs: &[Outcome]) -> Result<Shown, Refused> {
    parse(plan, "figures.toml").unwrap()[0].draw(runs)
}

fn sweep_runs() -> Vec<Outcome> {
    let mut runs = Vec::new();
    for controller in ["reno", "becc"] {
        for window in [50, 10, 20] {
            runs.extend([1, 2].map(|seed| specimen::run("fig10", controller, window, 400, seed)));
        }
    }
    runs
}

#[test]
fn a_sweep_has_a_curve_per_value_with_mean_and_spread_over_seeds() {
    let runs = sweep_runs();
    let Shown { figure, runs: used, .. } = draw(SWEEP, &runs).unwrap();
    assert_eq!(figure.layers.iter().map(|l| l.label.as_str()).collect::<Vec<_>>(), ["RE-TCP", "becc"]);
    let reno = &figure.layers[0];
    assert_eq!(
        reno.points.iter().map(|p| p.0).collect::<Vec<_>>(),
        [43.0, 86.0, 215.0],
        "ordered by x, in kbyte"
    );
    let (a, b) = (runs[0].flows[0].goodput_bps * 1e-6, runs[1].flows[0].goodput_bps * 1e-6);
    assert!((reno.points[2].1 - (a + b) / 2.0).abs() < 1e-9, "the mean of two seeds, in Mbit/s");
    assert_eq!(reno.spread.as_ref().unwrap()[2], (a.min(b), a.max(b)));
    assert_eq!(used.len(), 12);
    let one_seed = draw(&SWEEP.replace("kind =", "seed = 2\nkind ="), &runs).unwrap();
    assert_eq!((one_seed.figure.layers[0].spread.clone(), one_seed.runs.len()), (None, 6));
}

#[test]
fn runs_of_two_hosts_lie_on_one_figure_each_curve_once_per_host() {
    let mut runs = sweep_runs();
    let measured = sweep_runs().into_iter().map(|run| Outcome { host: "wire".into(), ..run });
    runs.extend(measured);
    let labels = |shown: &Shown| shown.figure.layers.iter().map(|l| l.label.clone()).collect::<Vec<_>>();
    let shown = draw(SWEEP, &runs).unwrap();
    assert_eq!(labels(&shown), ["RE-TCP, sim", "becc, sim", "RE-TCP, wire", "becc, wire"]);
    assert_eq!(shown.figure.layers[0].points, shown.figure.layers[2].points);
    let mut runs = ["sim", "wire"].map(|host| {
        let run =
            |controller| Outcome { host: host.into(), ..specimen::run("trace", controller, 120, 3000, 1) };
        [run("reno"), run("becc")]
    });
    let shown = draw(TIME, &runs.concat()).unwrap();
    assert_eq!(shown.figure.layers.len(), 4, "more than four curves over time: the first host's only");
    assert!(shown.runs.iter().all(|run| run.host == "sim"));
    runs.reverse();
    assert!(draw(TIME, &runs.concat()).unwrap().runs.iter().all(|run| run.host == "wire"));
}

#[test]
fn a_close_up_in_which_nothing_lies_shows_the_whole() {
    let runs = [specimen::run("trace", "reno", 120, 3000, 1), specimen::run("trace", "becc", 120, 3000, 1)];
    let range = |from: &str| {
        let plan = TIME.replace("label = \"Time (ms)\"", &format!("label = \"Time (ms)\", range = {from}"));
        assert_ne!(plan, TIME);
        draw(&plan, &runs).unwrap().figure.x.range
    };
    assert_eq!(range("[0, 100]"), Some((0.0, 100.0)));
    assert_eq!(range("[1e9, 2e9]"), None);
}

#[test]
fn a_sweep_does_not_average_over_what_it_does_not_show() {
    let message =
        draw(&SWEEP.replace("curve = \"flow.bulk.controller\"", ""), &sweep_runs()).unwrap_err().to_string();
    assert!(
        message.contains("differ in `flow.bulk.controller`") && message.contains("fig10.toml"),
        "{message}"
    );
}

#[test]
fn a_time_figure_picks_its_runs_scales_and_shades_stalls() {
    let runs = [specimen::run("trace", "reno", 120, 3000, 1), specimen::run("trace", "becc", 120, 3000, 1)];
    let Shown { figure, runs: used, .. } = draw(TIME, &runs).unwrap();
    let sent = runs[0].series("bulk", "seq_sent").unwrap();
    let last = sent.points.last().unwrap();
    assert_eq!(figure.layers[0].points.last(), Some(&(last.0 * 1e3, last.1 * 1e-3)));
    assert_eq!(figure.layers[1].points.len() as u64, runs[0].flows[0].lost);
    assert_eq!(figure.layers[1].style, Style::Marks(Mark::OpenCircle));
    assert!(figure.layers[2].right_axis && figure.layers[2].ink == Ink::Purple);
    assert_ne!(figure.layers[0].points, figure.layers[3].points, "the last layer is another run's");
    assert_eq!(used.len(), 2);
    let stalls: Vec<&Band> = figure.bands.iter().filter(|b| b.stall).collect();
    assert_eq!(stalls.len() as u64, runs[0].flows[0].rto_count, "every stall ends in a timeout");
    assert!(stalls.iter().all(|b| b.to - b.from > 1000.0 && b.to - b.from < 1600.0), "{stalls:?}");
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    let runs = [specimen::run("trace", "reno", 20, 50, 1)];
    #[track_caller]
    fn refused(plan: &str, runs: &[Outcome], expected: &str) {
        let message = draw(plan, runs).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let alone = TIME.rsplit_once("{ series").unwrap().0.to_owned() + "]";
    assert!(draw(&alone, &runs).is_ok());
    refused(&TIME.replace("bulk.cwnd", "bulk.cwmd"), &runs, "there are: seq_sent, ack_received, cwnd");
    refused(&TIME.replace("bulk.cwnd", "blk.cwnd"), &runs, "there are series of: bulk, r1>r2");
    refused(&TIME.replace("bulk.drop", "blk.drop"), &runs, "no flow is called `blk`");
    refused(TIME, &runs, "layer `BECC`: no run has flow.bulk.controller = becc");
    refused(&alone, &[], "no run has");
    refused(
        &alone,
        &[runs[0].clone(), specimen::run("trace", "reno", 30, 50, 1)],
        "differ in `flow.bulk.window`",
    );
    refused(&SWEEP.replace("goodput_bps", "goodput"), &runs, "there are: completed, controller");
    refused(&SWEEP.replace("goodput_bps", "rtt"), &runs, "rtt.p50");
    refused(
        &SWEEP.replace("key = \"flow.bulk.window\"", "key = \"flow.bulk.controller\""),
        &runs,
        "is no number",
    );
    refused(
        &SWEEP.replace("key = \"flow.bulk.window\"", "key = \"link.rate\""),
        &runs,
        "swept are: flow.bulk",
    );
    assert!(
        draw(&alone.replace("\"reno\"", "\"reno\", \"flow.bulk.window\" = \"86kB\""), &runs).is_ok(),
        "86000B"
    );
}

#[test]
fn several_flows_become_one_number() {
    assert_eq!(Over::Jain.apply(&[1.0, 1.0, 1.0]), 1.0);
    assert_eq!(Over::Jain.apply(&[1.0, 0.0]), 0.5);
    assert_eq!((Over::Sum.apply(&[1.0, 2.0]), Over::Max.apply(&[1.0, 2.0])), (3.0, 2.0));
}

#[test]
fn swept_values_are_numbers_in_base_units() {
    for (text, value) in [
        ("220kB", 220e3),
        ("1MiB", 1048576.0),
        ("1.5s", 1.5),
        ("30ms", 0.03),
        ("0.75", 0.75),
        ("45Mbit/s", 45e6),
        ("32p", 32.0),
        ("1.5BDP", 1.5),
    ] {
        assert_eq!(base_number(text), Some(value), "{text}");
    }
    assert_eq!(base_number("reno"), None);
}
