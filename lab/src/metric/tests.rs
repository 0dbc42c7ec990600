//! Each metric on a run small enough to work out by hand.

use super::*;
use crate::outcome::Quantiles;

/// Starts at 1 s; segments of 1000 B. 0..=7000 leave at 1.0..=1.7, of which 3000, 4000 and 6000 are dropped; two fast
/// retransmits; silence from 1.9 until the timeout at 3.2; then the ACK advances to the end at 3.3, and again at 4.5.
fn run() -> Outcome {
    let points_of = |subject: &str, quantity: &str, unit: &str, points: &[(f64, f64)]| {
        let mut series = Series::new(subject, quantity, unit, crate::outcome::SERIES_POINTS);
        series.points = points.to_vec();
        series
    };
    let points =
        |quantity: &str, unit: &str, points: &[(f64, f64)]| points_of("bulk", quantity, unit, points);
    let event =
        |time_s, kind, value| Event { time_s, flow: "bulk".into(), kind, value, detail: String::new() };
    Outcome {
        flows: vec![
            FlowSummary {
                name: "bulk".into(),
                goodput_bps: 16e3,
                delivered_bytes: 7000,
                started_at_s: 1.0,
                finished_at_s: 4.5,
                completed: true,
                segments_sent: 12,
                retransmissions: 3,
                retransmit_ratio: 0.25,
                rto_count: 1,
                fast_retransmits: 2,
                ecn_reductions: 2,
                window_notice: Quantiles { count: 2, p50: 0.004, max: 0.009, ..Quantiles::default() },
                lost: 3,
                rtt: Quantiles { count: 4, min: 0.014, p50: 0.015, p95: 0.017, ..Quantiles::default() },
                ..FlowSummary::default()
            },
            FlowSummary {
                name: "bulk2".into(),
                goodput_bps: 48e3,
                delivered_bytes: 2000,
                finished_at_s: 4.0,
                ..FlowSummary::default()
            },
            FlowSummary { name: "late".into(), started_at_s: 9.0, ..FlowSummary::default() },
        ],
        queues: vec![
            QueueSummary { name: "r0>r1".into(), ..QueueSummary::default() },
            QueueSummary {
                name: "r1>r2".into(),
                arrived: 40,
                drops: 3,
                drop_ratio: 0.075,
                marks: 2,
                backlog_mean_packets: 2.5,
                utilisation: 0.5,
                ..QueueSummary::default()
            },
        ],
        ended_at_s: 5.0,
        given: [("flow.bulk.window".to_owned(), "30kB".to_owned())].into(),
        series: vec![
            points(
                "seq_sent",
                "B",
                &(0..8).map(|i| (1.0 + f64::from(i) / 10.0, f64::from(i) * 1e3)).collect::<Vec<_>>(),
            ),
            points(
                "ack_received",
                "B",
                &[(1.1, 1e3), (1.2, 2e3), (1.21, 3e3), (1.3, 3e3), (1.9, 4e3), (3.3, 8e3), (4.5, 9e3)],
            ),
            points("window_from", "", &[(2.0, 0.0), (3.0, 1.0), (4.0, 0.0)]),
            points("window", "B", &[(1.0, 5e3), (2.0, 3e3), (5.0, 3e3)]),
            points_of("bulk2", "window", "B", &[(1.5, 1e3), (3.0, 4e3), (4.0, 2e3), (5.0, 2e3)]),
            points("th", "B/s", &[(1.0, 100.0), (2.0, 300.0), (4.0, 200.0)]),
        ],
        events: vec![
            event(1.35, EventKind::Drop, 3e3),
            event(1.45, EventKind::Drop, 4e3),
            event(1.65, EventKind::Drop, 6e3),
            event(1.5, EventKind::Mark, 5e3),
            event(1.7, EventKind::Mark, 7e3),
            event(2.0, EventKind::EcnReduction, 6e3), // by the ACK of 5000..6000
            event(2.4, EventKind::EcnReduction, 9e3),
            event(1.75, EventKind::FastRetransmit, 3e3),
            event(1.75, EventKind::Retransmission, 3e3),
            event(1.9, EventKind::FastRetransmit, 4e3),
            event(1.9, EventKind::Retransmission, 4e3),
            event(3.2, EventKind::Timeout, 6e3),
            event(3.2, EventKind::Retransmission, 6e3),
        ],
        ..Outcome::default()
    }
}

fn measure(name: &str, ask: &Ask) -> Measured {
    by_name(name).unwrap().of(&run(), ask).map(|a| a.value)
}

fn bulk() -> Ask {
    Ask { flow: Some("bulk".into()), ..Ask::default() }
}

fn of_series(series: &str, window: (Option<f64>, Option<f64>)) -> Ask {
    Ask { series: Some(series.into()), window, ..bulk() }
}

#[track_caller]
fn assert_measures(name: &str, ask: &Ask, want: f64) {
    let got = measure(name, ask).unwrap();
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{name}: {got}, not {want}");
}

#[test]
fn how_late_a_router_is_heard_and_which() {
    assert_measures("window_notice", &bulk(), 0.004);
    assert_measures("window_notice_max", &bulk(), 0.009);
    assert_measures("mark_notice", &bulk(), 0.6); // 0.5 and 0.7
    assert_measures("mark_notice_max", &bulk(), 0.7);
    let at = |queue: &str, window| Ask { queue: Some(queue.into()), window, ..bulk() };
    // r1 wrote from 3 to 4 s, r0 from 2 to 3 and from 4 to the end at 5.
    assert_measures("bottleneck_share", &at("r1>r2", (None, None)), 1.0 / 3.0);
    assert_measures("bottleneck_share", &at("r1>r2", (Some(2.5), Some(4.0))), 2.0 / 3.0);
    assert_measures("bottleneck_found", &at("r1>r2", (Some(2.5), None)), 0.5);
    assert_measures("bottleneck_found", &at("r0>r1", (Some(2.5), None)), 0.0);
    assert!(measure("bottleneck_found", &at("r1>r2", (Some(4.5), None))).is_err());
    assert!(measure("bottleneck_share", &at("r9", (None, None))).is_err());
}

#[test]
fn a_sum_over_flows_counts_once_all_have_a_value() {
    let windows = |window| Ask { series: Some("window".into()), window, ..bulk() };
    // 5 + 1 at 1.5 s, 3 + 1 at 2, 3 + 4 at 3, 3 + 2 at 4.
    assert_measures("sum_series_max", &windows((None, None)), 7e3);
    assert_measures("sum_series_max", &windows((Some(1.0), Some(2.5))), 6e3);
    assert_measures("sum_series_max", &windows((Some(3.5), None)), 7e3); // it begins with what it finds
}

#[test]
fn intervals_between_changes() {
    let series = |change| Ask { change, ..of_series("ack_received", (None, None)) };
    // It rises at 1.2, 1.21, 1.9, 3.3 and 4.5; it never falls.
    assert_measures("change_interval", &series(Change::Rise), 0.945);
    assert!(measure("change_interval", &series(Change::Fall)).is_err());
}

#[test]
fn summaries_are_read_as_they_are() {
    assert_measures("goodput", &bulk(), 16e3);
    assert_measures("completion_time", &bulk(), 3.5);
    assert_measures("retransmit_ratio", &bulk(), 0.25);
    assert_measures("rtt_p95", &bulk(), 0.017);
    let queue = Ask { queue: Some("r1>r2".into()), ..Ask::default() };
    assert_measures("drop_ratio", &queue, 0.075);
    assert_measures("utilisation", &queue, 0.5);
    assert_measures("marks", &queue, 2.0);
    assert_measures("backlog_mean_packets", &queue, 2.5);
}

#[test]
fn what_did_not_happen_is_undefined_and_never_zero() {
    let late = Ask { flow: Some("late".into()), ..Ask::default() };
    assert_eq!(measure("goodput", &late), Err(Undefined("flow late never ran".into())));
    let second = Ask { flow: Some("bulk2".into()), ..Ask::default() };
    assert!(measure("completion_time", &second).unwrap_err().0.contains("did not complete"));
    assert!(measure("rtt_min", &second).unwrap_err().0.contains("no RTT"));
    assert!(measure("first_rto_at", &second).unwrap_err().0.contains("no Timeout"));
    assert!(
        measure("series_mean", &of_series("nothing", (None, None)))
            .unwrap_err()
            .0
            .contains("no series nothing")
    );
    assert!(measure("queue_delay_p50", &Ask { queue: Some("r1>r2".into()), ..Ask::default() }).is_err());
}

#[test]
fn events_that_were_counted_but_not_kept_make_a_count_undefined() {
    let mut outcome = run();
    outcome.events.retain(|e| e.kind != EventKind::Timeout);
    for name in ["rto_count_in", "first_rto_at", "silence_before_first_rto"] {
        let why = by_name(name).unwrap().of(&outcome, &bulk()).unwrap_err();
        assert!(why.0.contains("[record] flows = true"), "{name}: {why}");
    }
}

#[test]
fn the_first_loss_episode_in_numbers() {
    assert_measures("first_loss_at", &bulk(), 0.35);
    assert_measures("first_rto_at", &bulk(), 2.2);
    assert_measures("lost_consecutive_max", &bulk(), 2.0);
    assert_measures("fast_retransmits_before_first_rto", &bulk(), 2.0);
    assert_measures("silence_before_first_rto", &bulk(), 1.3);
    assert_measures("rto_count_in", &Ask { window: (Some(3.0), None), ..bulk() }, 1.0);
    assert_measures("rto_count_in", &Ask { window: (Some(3.3), None), ..bulk() }, 0.0);
}

#[test]
fn flat_stretches_lie_between_two_advances() {
    // 1.21 to 1.9 (the ACK at 1.3 does not advance), 1.9 to 3.3, 3.3 to 4.5.
    assert_measures("flat_count", &bulk(), 3.0);
    assert_measures("flat_median", &bulk(), 1.2);
    assert_measures("flat_longest", &bulk(), 1.4);
    assert_measures("flat_count", &Ask { band: (Some(1.0), Some(1.3)), ..bulk() }, 1.0);
    assert_measures("flat_count", &Ask { band: (Some(0.65), Some(0.7)), ..bulk() }, 1.0);
    assert!(measure("flat_median", &Ask { band: (Some(9.0), None), ..bulk() }).is_err());
}

#[test]
fn the_mean_over_time_weighs_each_value_by_how_long_it_held() {
    // B/s become bit/s. 100 for 1 s, 300 for 2 s; from 1.5: 100 for 0.5 s, 300 for 1 s.
    assert_measures("series_mean", &of_series("th", (None, None)), 8.0 * 700.0 / 3.0);
    assert_measures("series_mean", &of_series("becc.th", (Some(1.5), Some(3.0))), 8.0 * 350.0 / 1.5);
    assert_measures("series_mean", &of_series("th", (Some(5.0), Some(6.0))), 8.0 * 200.0);
    assert!(
        measure("series_mean", &of_series("th", (Some(0.0), Some(0.9)))).is_err(),
        "before the first value there is none"
    );
    assert_measures("series_max", &of_series("th", (Some(3.0), None)), 2400.0);
    assert_measures("series_max", &of_series("th", (Some(4.0), None)), 1600.0);
    assert_measures("series_max", &of_series("th", (Some(4.5), None)), 1600.0);
    assert_measures("series_last", &of_series("th", (Some(2.5), Some(3.0))), 2400.0);
    assert_measures("series_min", &of_series("th", (None, None)), 800.0);
    assert_measures("series_last", &of_series("th", (None, Some(3.0))), 2400.0);
}

#[test]
fn a_queues_series_in_packets_are_numbers_without_a_unit() {
    let mut outcome = run();
    let mut average = Series::new("r1>r2", "average_packets", "p", 100);
    average.points = vec![(0.0, 0.0), (2.0, 4.0), (8.0, 10.0), (40.0, 10.0)];
    outcome.series.push(average);
    let ask = Ask {
        queue: Some("r1>r2".into()),
        series: Some("average_packets".into()),
        window: (Some(5.0), Some(30.0)),
        ..Ask::default()
    };
    let mean = by_name("series_mean").unwrap().of(&outcome, &ask);
    assert_eq!(mean, Ok(Number::new((3.0 * 4.0 + 22.0 * 10.0) / 25.0, Unit::One)));
}

#[test]
fn the_next_change_is_looked_for_in_the_asked_direction() {
    let ask = |change, window| Ask { change, ..of_series("th", window) };
    assert_measures("set_again_within", &ask(Change::Any, (Some(1.5), None)), 0.5);
    assert_measures("set_again_within", &ask(Change::Fall, (Some(1.5), None)), 2.5);
    assert!(
        measure("set_again_within", &ask(Change::Fall, (Some(1.5), Some(3.0)))).is_err(),
        "too late is not within"
    );
    assert!(measure("set_again_within", &ask(Change::Rise, (Some(2.5), None))).is_err());
}

#[test]
fn the_peak_rate_is_the_largest_advance_in_one_bin() {
    // Bins of 100 ms from 1.1: 2000 and 3000 arrive in [1.2, 1.3): 2000 B in 0.1 s; 4000 B at 3.3.
    let ask = |window| Ask { bin: Some(0.1), window, ..bulk() };
    assert_measures("rate_peak", &ask((Some(1.05), Some(1.28))), 2000.0 * 8.0 / 0.1);
    assert_measures("rate_peak", &ask((None, None)), 4000.0 * 8.0 / 0.1);
}

#[test]
fn flows_that_share_a_prefix_are_judged_together() {
    // 7000 and 2000 B from 0 s (the second's start) to 4.5 s (the first's end).
    assert_measures("sum_goodput", &bulk(), 16e3);
    // 16 and 48: 64^2 / (2 (256 + 2304)) = 0.8.
    assert_measures("jain", &bulk(), 0.8);
    assert!(measure("jain", &Ask { flow: Some("other".into()), ..Ask::default() }).is_err());
    assert_eq!(jain(&[1.0, 1.0, 1.0]), Some(1.0));
    assert_eq!(jain(&[0.0, 0.0]), None);
}

#[test]
fn window_use_takes_the_window_from_the_sweep_or_the_scenario() {
    // 16 kbit/s x 14 ms / 8 = 28 B of 30 kB.
    assert_measures("window_use", &bulk(), 28.0 / 30e3);
    let mut outcome = run();
    outcome.given.clear();
    assert!(by_name("window_use").unwrap().of(&outcome, &bulk()).is_err());
    outcome.scenario = "[[flow]]\nname = \"bulk\"\nwindow = \"28 B\"\n".into();
    assert!((by_name("window_use").unwrap().of(&outcome, &bulk()).unwrap().value - 1.0).abs() < 1e-12);
}

#[test]
fn names_are_unique_and_options_are_real() {
    for (i, m) in REGISTRY.iter().enumerate() {
        assert!(REGISTRY[..i].iter().all(|other| other.name != m.name), "{} twice", m.name);
        assert!(
            m.options.iter().all(|o| ["series", "window", "band", "bin", "change"].contains(o)),
            "{}",
            m.name
        );
    }
}
