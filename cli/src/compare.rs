//! `narrows compare`: one scenario on several hosts, and per metric what they say and how far they are apart.
//!
//! A single run gives a row per metric; a sweep gives a row per point. Values are means over the seeds. Differences are
//! against the host named first: relative for rates, times and amounts, in percentage points for ratios, plain for counts.

use crate::on::{Making, On};
use crate::run::key_value;
use crate::work::{jobs, run_all};
use crate::{Stop, note, say, seeds};
use clap::{Args as ClapArgs, ValueEnum};
use narrows_lab::file::Document;
use narrows_lab::metric::{self, Ask, Metric, Number, Subject, Unit, set::Reduce};
use narrows_lab::outcome::Outcome;
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// Scenario file
    file: PathBuf,
    /// Hosts to compare; differences are against the first
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["sim", "linux"], value_name = "HOST,HOST")]
    on: Vec<On>,
    #[command(flatten)]
    making: Making,
    /// Set a key of the file, e.g. flow.bulk.window=220kB (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Seeds, each a run of its own on every host: 7, or 1..20 (both included)
    #[arg(long, default_value = "1", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// What to compare: metrics of flows and queues, as `narrows list` names them
    #[arg(long, value_delimiter = ',', default_values = METRICS, value_name = "NAME,NAME", value_parser = metric_named)]
    metric: Vec<&'static Metric>,
    /// Compare these queues (from>to); default: those in which packets waited
    #[arg(long, value_delimiter = ',', value_name = "QUEUE")]
    queue: Vec<String>,
    /// How to print the comparison
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What an experimenter asks first.
const METRICS: [&str; 9] = [
    "goodput",
    "retransmit_ratio",
    "rtt_p50",
    "rtt_p95",
    "queue_delay_p50",
    "queue_delay_p95",
    "rto_count",
    "stalls",
    "completion_time",
];

/// How a comparison is written to standard output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs; its keys are stable
    Json,
    /// For documents
    Markdown,
}

fn metric_named(name: &str) -> Result<&'static Metric, String> {
    metric::by_name(name)
        .filter(|m| matches!(m.subject, Subject::Flow | Subject::Queue) && m.options.is_empty())
        .ok_or_else(|| {
            format!("`{name}` is no metric of a flow or a queue: write for example {}", METRICS.join(", "))
        })
}

pub fn compare(args: Args) -> Result<ExitCode, Stop> {
    if args.on.len() < 2 {
        return Err(Stop::Refused(miette::miette!(
            "a comparison needs two hosts: write for example --on sim,linux"
        )));
    }
    let document = Document::read(&args.file)?;
    let mut of_hosts = Vec::new();
    for on in &args.on {
        let mut jobs = jobs(&document, &args.set, args.seeds.clone())?;
        let _guests = args.making.prepare(&mut jobs, *on)?;
        of_hosts.push(run_all(&jobs, args.making.jobs, |_, outcome| outcome)?);
    }
    let seeds = args.seeds.clone().count();
    let points: Vec<Point> = (0..of_hosts[0].len() / seeds)
        .map(|i| Point { hosts: of_hosts.iter().map(|runs| &runs[i * seeds..(i + 1) * seeds]).collect() })
        .collect();
    match args.format {
        Format::Json => say(format_args!("{:#}\n", as_json(&args, &points)))?,
        Format::Text => say(grid(&args, &points).text())?,
        Format::Markdown => say(grid(&args, &points).markdown())?,
    }
    for outcome in of_hosts.iter().flatten() {
        for said in &outcome.notes {
            note(format_args!("note: {}: {said}", place(outcome)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Which run this was: `linux, seed 1, run.duration=3s`.
fn place(o: &Outcome) -> String {
    let given: String = o.given.iter().map(|(k, v)| format!(", {k}={v}")).collect();
    format!("{}, seed {}{given}", o.host, o.seed)
}

/// One point of the sweep: for each host its runs, one per seed.
struct Point<'a> {
    hosts: Vec<&'a [Outcome]>,
}

/// What is compared: a metric of a flow or a queue.
struct Row {
    metric: &'static Metric,
    subject: String,
}

impl Row {
    fn ask(&self) -> Ask {
        let subject = Some(self.subject.clone());
        match self.metric.subject {
            Subject::Queue => Ask { queue: subject, ..Ask::default() },
            _ => Ask { flow: subject, ..Ask::default() },
        }
    }

    /// The mean over runs; `None` if any of them has no such number.
    fn mean(&self, runs: &[Outcome]) -> Option<Number> {
        let each: Option<Vec<Number>> = runs.iter().map(|o| self.metric.of(o, &self.ask()).ok()).collect();
        let each = each?;
        let values: Vec<f64> = each.iter().map(|n| n.value).collect();
        Some(Number::new(Reduce::Mean.of(&values).ok()?, each.first()?.unit))
    }

    fn is_ratio(&self) -> bool {
        self.metric.name.ends_with("ratio")
    }

    fn show(&self, value: Option<Number>) -> String {
        match value {
            None => "none".into(),
            Some(n) if self.is_ratio() => format!("{:.3} %", n.value * 100.0),
            Some(n) => n.to_string(),
        }
    }

    /// How far `other` is from `first`.
    fn difference(&self, first: Option<Number>, other: Option<Number>) -> String {
        let (Some(a), Some(b)) = (first, other) else { return "none".into() };
        let by = b.value - a.value;
        if self.is_ratio() {
            format!("{:+.3} points", by * 100.0)
        } else if by == 0.0 {
            "equal".into()
        } else if a.unit == Unit::One || a.value == 0.0 {
            let sign = if by > 0.0 { "+" } else { "" };
            format!("{sign}{}", Number::new(by, a.unit))
        } else {
            format!("{:+.1} %", by / a.value * 100.0)
        }
    }
}

/// All that is compared: every asked metric of every flow and of every asked queue, in the scenario's order.
fn rows(args: &Args, points: &[Point<'_>]) -> Vec<Row> {
    let all = || points.iter().flat_map(|p| p.hosts.iter().copied().flatten());
    let first = all().next().expect("a sweep has a point and a point a run");
    let waited = |name: &str| {
        all().flat_map(|o| &o.queues).any(|q| q.name == name && (q.drops > 0 || q.delay.p95 > 0.0))
    };
    let flows: Vec<&str> = first.flows.iter().map(|f| f.name.as_str()).collect();
    let queues = first.queues.iter().map(|q| q.name.as_str());
    let queues: Vec<&str> = if args.queue.is_empty() {
        queues.filter(|q| waited(q)).collect()
    } else {
        queues.filter(|q| args.queue.iter().any(|asked| asked == q)).collect()
    };
    let mut rows = Vec::new();
    for (subject, names) in [(Subject::Flow, flows), (Subject::Queue, queues)] {
        for name in names {
            let of = args.metric.iter().filter(|m| m.subject == subject);
            rows.extend(of.map(|metric| Row { metric, subject: name.to_string() }));
        }
    }
    // What no host can tell (the completion of an endless flow, say) is not compared.
    rows.retain(|row| points.iter().any(|p| p.hosts.iter().any(|runs| row.mean(runs).is_some())));
    rows
}

fn grid(args: &Args, points: &[Point<'_>]) -> Grid {
    let rows = rows(args, points);
    let hosts = || args.on.iter().map(|h| h.name());
    let [point] = points else { return swept(args, points, &rows) };
    let differences = hosts().skip(1).map(|h| format!("{h} against {}", args.on[0].name()));
    let head = ["".to_string(), "".to_string()].into_iter();
    let mut grid =
        Grid { head: head.chain(hosts().map(str::to_string)).chain(differences).collect(), rows: vec![] };
    for row in &rows {
        let values: Vec<_> = point.hosts.iter().map(|runs| row.mean(runs)).collect();
        let mut cells = vec![row.subject.clone(), row.metric.name.to_string()];
        cells.extend(values.iter().map(|v| row.show(*v)));
        cells.extend(values.iter().skip(1).map(|v| row.difference(values[0], *v)));
        grid.rows.push(cells);
    }
    grid
}

/// A row per point: `9.51 / 9.44 Mbit/s (-0.7 %)`.
fn swept(args: &Args, points: &[Point<'_>], rows: &[Row]) -> Grid {
    let keys: Vec<String> = points[0].hosts[0][0].given.keys().cloned().collect();
    let hosts = args.on.iter().map(|h| h.name()).collect::<Vec<_>>().join(" / ");
    let named = |row: &Row| format!("{} {} ({hosts})", row.subject, row.metric.name);
    let mut head: Vec<String> = keys.iter().cloned().chain(rows.iter().map(named)).collect();
    let real: Vec<usize> = (0..args.on.len()).filter(|h| args.on[*h].is_real()).collect();
    head.extend(real.iter().map(|h| format!("{} late by (p99)", args.on[*h].name())));
    let mut grid = Grid { head, rows: vec![] };
    for point in points {
        let given = &point.hosts[0][0].given;
        let mut cells: Vec<String> = keys.iter().map(|k| given.get(k).cloned().unwrap_or_default()).collect();
        for row in rows {
            let values: Vec<_> = point.hosts.iter().map(|runs| row.mean(runs)).collect();
            let shown = values.iter().map(|v| row.show(*v)).collect::<Vec<_>>().join(" / ");
            let apart = values.iter().skip(1).map(|v| row.difference(values[0], *v)).collect::<Vec<_>>();
            cells.push(format!("{shown} ({})", apart.join(", ")));
        }
        for h in &real {
            let worst = point.hosts[*h].iter().filter_map(|o| Some(o.lateness?.p99)).fold(0.0, f64::max);
            cells.push(Number::new(worst, Unit::Second).to_string());
        }
        grid.rows.push(cells);
    }
    grid
}

fn as_json(args: &Args, points: &[Point<'_>]) -> Value {
    let rows = rows(args, points);
    let by_host = |of: &dyn Fn(usize) -> Value| -> Map<String, Value> {
        args.on.iter().enumerate().map(|(i, h)| (h.name().to_string(), of(i))).collect()
    };
    let point = |p: &Point<'_>| {
        let row = |row: &Row| {
            let values: Vec<_> = p.hosts.iter().map(|runs| row.mean(runs)).collect();
            let unit = values.iter().flatten().next().map(|n| n.unit.sign());
            json!({
                "subject": row.subject,
                "metric": row.metric.name,
                "unit": unit,
                "values": by_host(&|i| json!(values[i].map(|n| n.value))),
                "differences": by_host(&|i| json!(values[i].zip(values[0]).map(|(b, a)| b.value - a.value))),
            })
        };
        json!({
            "given": p.hosts[0][0].given,
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "lateness_p99_s": by_host(&|i| json!(p.hosts[i].iter().filter_map(|o| Some(o.lateness?.p99)).reduce(f64::max))),
            "notes": by_host(&|i| json!(p.hosts[i].iter().flat_map(|o| o.notes.clone()).collect::<Vec<_>>())),
        })
    };
    json!({
        "scenario": points[0].hosts[0][0].name,
        "version": env!("CARGO_PKG_VERSION"),
        "hosts": args.on.iter().map(|h| h.name()).collect::<Vec<_>>(),
        "seeds": args.seeds.clone().collect::<Vec<_>>(),
        "points": points.iter().map(point).collect::<Vec<_>>(),
    })
}

/// A table of texts.
struct Grid {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |i: usize| all().map(|r| r[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        all()
            .map(|row| {
                let cells = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}"));
                format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
            })
            .collect()
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = line(&vec!["---".to_string(); self.head.len()]);
        std::iter::once(line(&self.head)).chain([rule]).chain(self.rows.iter().map(|r| line(r))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row { metric: metric::by_name(name).unwrap(), subject: "bulk".into() }
    }

    #[test]
    fn differences_are_relative_except_for_ratios_and_counts() {
        let n = |value, unit| Some(Number::new(value, unit));
        for (metric, a, b, says) in [
            ("goodput", n(10e6, Unit::BitPerSecond), n(9.5e6, Unit::BitPerSecond), "-5.0 %"),
            ("retransmit_ratio", n(0.01, Unit::One), n(0.0125, Unit::One), "+0.250 points"),
            ("rto_count", n(0.0, Unit::One), n(3.0, Unit::One), "+3"),
            ("queue_delay_p95", n(0.0, Unit::Second), n(0.002, Unit::Second), "+2 ms"),
            ("rtt_p50", n(0.01, Unit::Second), n(0.01, Unit::Second), "equal"),
            ("completion_time", None, n(1.0, Unit::Second), "none"),
        ] {
            assert_eq!(row(metric).difference(a, b), says, "{metric}");
        }
    }
}
