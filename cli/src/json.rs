//! The JSON of `narrows run --format json`. One run is `{"scenario", "seed", "given", "host", "version", "trace_hash",
//! "ended_at_s", "delivered_packets", "flows": [...], "queues": [...], "notes": [...]}`; several are `{"runs": [...]}` of these. Keys are
//! only ever added.

use narrows_lab::Outcome;
use narrows_lab::outcome::{FlowSummary, Quantiles, QueueSummary};
use serde_json::{Map, Value, json};

/// All runs of a command.
pub fn runs(outcomes: &[Outcome]) -> Value {
    match outcomes {
        [one] => run(one),
        many => json!({ "runs": many.iter().map(run).collect::<Vec<_>>() }),
    }
}

fn run(o: &Outcome) -> Value {
    let mut all = object(json!({
        "scenario": o.name,
        "seed": o.seed,
        "given": o.given,
        "host": o.host,
        "version": o.version,
        "trace_hash": format!("{:016x}", o.trace_hash),
        "ended_at_s": o.ended_at_s,
        "delivered_packets": o.delivered_packets,
        "flows": o.flows.iter().map(flow).collect::<Vec<_>>(),
        "queues": o.queues.iter().map(queue).collect::<Vec<_>>(),
        "notes": o.notes,
    }));
    if let Some(lateness) = &o.lateness {
        all.extend(quantiles("lateness", lateness));
    }
    Value::Object(all)
}

fn flow(f: &FlowSummary) -> Value {
    let mut all = object(serde_json::to_value(f).expect("a summary is plain data"));
    all.remove("rtt");
    all.extend(quantiles("rtt", &f.rtt));
    all.remove("window_notice");
    if f.window_notice.count > 0 {
        all.extend(quantiles("window_notice", &f.window_notice));
    }
    Value::Object(all)
}

fn queue(q: &QueueSummary) -> Value {
    let mut all = object(serde_json::to_value(q).expect("a summary is plain data"));
    all.remove("delay");
    all.extend(quantiles("delay", &q.delay));
    Value::Object(all)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => unreachable!("a struct is an object, not {other}"),
    }
}

/// `rtt_p50_s` and the like.
fn quantiles(name: &str, q: &Quantiles) -> Map<String, Value> {
    [
        ("min", q.min),
        ("p05", q.p05),
        ("p50", q.p50),
        ("p95", q.p95),
        ("p99", q.p99),
        ("max", q.max),
        ("mean", q.mean),
    ]
    .into_iter()
    .map(|(at, value)| (format!("{name}_{at}_s"), json!(value)))
    .collect()
}
