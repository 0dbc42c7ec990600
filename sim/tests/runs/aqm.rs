//! Queues that are managed, in whole runs: what RED and CoDel are for, and what is recorded of them.

use super::{chain, run};
use narrows_lab::Outcome;
use narrows_lab::metric::{self, Ask};

/// Two endless Reno flows with 40 ms of propagation there and back, through a queue at 10 Mbit/s.
fn through(queue: &str) -> Outcome {
    let second = format!(
        "rate = \"10Mbit/s\"\ndelay = \"19ms\"\nqueue = {queue}\nbackward = {{ queue = \"fifo:1000p\" }}"
    );
    let first = "rate = \"100Mbit/s\"\ndelay = \"1ms\"";
    let flow = "name = \"bulk\"\ncount = 2\nwindow = \"1MiB\"";
    run(&chain("duration = \"30s\"\n[record]\nqueues = true", first, &second, &[flow]), 1)
}

fn ask(series: &str, window: (Option<f64>, Option<f64>)) -> Ask {
    Ask { queue: Some("r>b".into()), series: Some(series.into()), window, ..Ask::default() }
}

#[track_caller]
fn measured(o: &Outcome, metric: &str, ask: &Ask) -> f64 {
    metric::by_name(metric).unwrap().of(o, ask).unwrap_or_else(|e| panic!("{metric}: {e}")).value
}

const RED: &str = "{ kind = \"red\", limit = \"150p\", min = \"10p\", max = \"30p\", rate = \"10Mbit/s\", mean_packet = \"1500B\"";

#[test]
fn red_keeps_the_average_between_its_thresholds_and_drops_before_the_queue_is_full_but_for_slow_start() {
    let o = through(&format!("{RED} }}"));
    let mean = measured(&o, "series_mean", &ask("average_packets", (Some(5.0), Some(30.0))));
    assert!((8.0..30.0).contains(&mean), "{mean}");
    let q = &o.queues[2];
    // The average follows over 500 packets, 0.6 s: slow start is faster.
    let (early, full) = (q.drops_by_reason["early"], q.drops_by_reason.get("full").unwrap_or(&0));
    assert!(early > 100 && early > 5 * full, "{q:?}");
    let plain = through("\"fifo:150p\"");
    assert!(2.0 * q.backlog_mean_packets < plain.queues[2].backlog_mean_packets, "{q:?}");
}

#[test]
fn adaptive_red_moves_max_p_until_the_average_is_midway() {
    let o = through(&format!("{RED}, adaptive = true, max_p = 0.5 }}"));
    let max_p = o.series("r>b", "max_p").unwrap();
    assert_eq!(max_p.points[0].1, 0.5);
    let last = max_p.points[max_p.points.len() - 1].1;
    assert!(last < 0.25, "two flows need little: {last}");
    let mean = |window| measured(&o, "series_mean", &ask("average_packets", window));
    let (early, late) = (mean((Some(1.0), Some(4.0))), mean((Some(20.0), Some(30.0))));
    assert!((late - 20.0).abs() < (early - 20.0).abs(), "midway is 20: {early}, then {late}");
}

#[test]
fn codel_keeps_the_delay_near_its_target_where_a_plain_queue_is_full() {
    let (codel, plain) = (through("\"codel\""), through("\"fifo:150p\""));
    let of = |o: &Outcome| (o.queues[2].delay.p50, o.queues[2].utilisation);
    assert!(of(&codel).0 < 0.010, "{:?}", of(&codel));
    assert!(of(&plain).0 > 0.040, "{:?}", of(&plain));
    assert!(of(&codel).1 > 0.8, "{:?}", of(&codel));
    assert!(codel.queues[2].drops_by_reason["early"] > 10);
    let largest = measured(&codel, "series_max", &ask("sojourn", (None, None)));
    let seen = codel.queues[2].delay.max;
    assert!((largest - seen).abs() < 0.003, "{largest} shown, {seen} waited");
}

#[test]
fn the_mean_backlog_of_the_summary_is_that_of_the_series() {
    for queue in ["\"fifo:30p\"", "\"codel\"", &format!("{RED} }}")] {
        let o = through(queue);
        assert_eq!(o.series("r>b", "backlog_packets").unwrap().stride, 1, "it was thinned out");
        let of_series = measured(&o, "series_mean", &ask("backlog_packets", (Some(0.0), None)));
        let of_summary = measured(&o, "backlog_mean_packets", &ask("", (None, None)));
        assert!((of_series - of_summary).abs() < 1e-6 * of_summary, "{queue}: {of_series}, {of_summary}");
    }
}
