//! One self-contained HTML page per report: claims, figures, runs. Everything is inside the file (styles, charts, data, the
//! licence of the chart library), and its content security policy forbids it to load anything.
//!
//! The page is a template (`assets/page.html`), its looks `assets/page.css`, its charts `assets/charts.js` over uPlot. Without
//! JavaScript it shows the SVG figures; the filter of the claims needs none.

use crate::figure::{Axis, Band, Figure, Layer, RunKey, Shown};
use crate::format::{bytes, count, rate, share, time};
use crate::svg;
use minijinja::value::Serde;
use minijinja::{Environment, Output, State};
use narrows_lab::Outcome;
use narrows_lab::outcome::{FlowSummary, Quantiles, QueueSummary};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Its headline.
    pub title: String,
    /// What was run and why; an empty line begins a new paragraph.
    pub intro: String,
    /// The command that makes this page again.
    pub command: String,
    /// The version of Narrows.
    pub version: String,
    /// Where the overview of all reports is, relative to this page; empty if there is none.
    pub up: String,
    /// What was claimed and what was measured; may be empty.
    pub claims: Vec<ClaimRow>,
    /// The figures, in order.
    pub figures: Vec<Shown>,
    /// The runs behind them.
    pub runs: Vec<Run>,
}

/// A claim and its verdict, ready to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClaimRow {
    /// `becc.fig10.ratio`.
    pub id: String,
    /// Where it is claimed: `Fig. 10`.
    pub source: String,
    /// What is claimed.
    pub text: String,
    /// What measured it.
    pub host: String,
    /// What was reported.
    pub reported: String,
    /// What is accepted as the same.
    pub accept: String,
    /// What was measured; empty if it was not run.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it differs or was not run.
    pub reason: String,
}

/// Whether a claim held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured within the accepted band.
    Reproduced,
    /// Measured outside it.
    Differs,
    /// Not measured.
    #[default]
    NotRun,
}

impl Verdict {
    const ALL: [Verdict; 3] = [Verdict::Reproduced, Verdict::Differs, Verdict::NotRun];

    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Differs => "differs",
            Verdict::NotRun => "not run",
        }
    }

    fn class(self) -> &'static str {
        if self == Verdict::NotRun { "not-run" } else { self.word() }
    }

    fn sign(self) -> &'static str {
        match self {
            Verdict::Reproduced => "✓",
            Verdict::Differs => "≠",
            Verdict::NotRun => "–",
        }
    }
}

/// What a page keeps of a run: everything but its series and events, so that many fit in memory.
#[derive(Clone, Debug, Default)]
pub struct Run {
    key: RunKey,
    scenario: String,
    trace_hash: u64,
    flows: Vec<FlowSummary>,
    queues: Vec<QueueSummary>,
    lateness: Option<Quantiles>,
    notes: Vec<String>,
}

impl Run {
    /// The summary of `run`.
    pub fn of(run: &Outcome) -> Run {
        Run {
            key: RunKey::of(run),
            scenario: run.scenario.clone(),
            trace_hash: run.trace_hash,
            flows: run.flows.clone(),
            queues: run.queues.clone(),
            lateness: run.lateness,
            notes: run.notes.clone(),
        }
    }
}

const CSS: &str = include_str!("../assets/page.css");
const CHARTS: &str = include_str!("../assets/charts.js");
const UPLOT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("../assets/uplot/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("../assets/uplot/LICENSE");

fn templates() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_formatter(escaped);
    for (name, source) in [
        ("page.html", include_str!("../assets/page.html")),
        ("index.html", include_str!("../assets/index.html")),
    ] {
        templates.add_template(name, source).expect("the templates are part of the program, and tested");
    }
    templates
}

/// Text becomes HTML. minijinja's own escape also takes the slash, which would hide `Mbit/s` from whoever searches the file.
fn escaped(out: &mut Output, _: &mut State, value: &minijinja::Value) -> Result<(), minijinja::Error> {
    let text = value.to_string();
    if value.is_safe() {
        return Ok(out.write_str(&text)?);
    }
    for c in text.chars() {
        match c {
            '&' => out.write_str("&amp;")?,
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            '"' => out.write_str("&quot;")?,
            '\'' => out.write_str("&#39;")?,
            other => out.write_char(other)?,
        }
    }
    Ok(())
}

fn fill(template: &str, content: Value) -> String {
    let templates = templates();
    let template = templates.get_template(template).expect("named in templates()");
    template.render(Serde(content)).expect("the templates are part of the program, and tested")
}

impl Page {
    /// The page as HTML.
    pub fn render(&self) -> String {
        let figures: Vec<Value> = self.figures.iter().map(shown).collect();
        let groups = groups(&self.runs);
        let sections = [
            ("claims", "Claims", !self.claims.is_empty()),
            ("figures", "Figures", !figures.is_empty()),
            ("runs", "Runs", !groups.is_empty()),
        ];
        let sections = sections.iter().filter(|s| s.2).map(|(id, name, _)| json!({ "id": id, "name": name }));
        let all = json!({ "class": "all", "name": "all claims", "count": self.claims.len() });
        let verdicts = std::iter::once(all).chain(Verdict::ALL.map(|v| tally(v, &self.claims)));
        let content = json!({
            "title": self.title,
            "intro": paragraphs(&self.intro),
            "command": self.command,
            "version": self.version,
            "up": self.up,
            "sections": sections.collect::<Vec<_>>(),
            "verdicts": verdicts.collect::<Vec<_>>(),
            "claims": self.claims.iter().map(claim).collect::<Vec<_>>(),
            "figures": figures,
            "groups": groups,
            "css": CSS,
            "charts_js": CHARTS,
            "uplot_js": UPLOT,
            "uplot_css": UPLOT_CSS,
            "uplot_license": UPLOT_LICENSE,
        });
        fill("page.html", content)
    }

    /// One sentence for terminals and lists: `18 reproduced, 2 differ, 1 not run`.
    pub fn summary(&self) -> String {
        let counts = Verdict::ALL.map(|v| (v, self.claims.iter().filter(|c| c.verdict == v).count()));
        let words = counts.iter().filter(|(_, n)| *n > 0).map(|(v, n)| match (v, n) {
            (Verdict::Differs, 2..) => format!("{n} differ"),
            _ => format!("{n} {}", v.word()),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// An overview that leads to reports.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Its headline.
    pub title: String,
    /// What the reports are; an empty line begins a new paragraph.
    pub intro: String,
    /// The command that makes them again.
    pub command: String,
    /// The version of Narrows.
    pub version: String,
    /// Path relative to the index, one line about it, and the page there.
    pub reports: Vec<Entry>,
}

/// A line of an [`Index`].
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Where the report is, relative to the index.
    pub href: String,
    /// Its headline.
    pub title: String,
    /// One line about it.
    pub about: String,
    /// Its claims, to be counted.
    pub claims: Vec<ClaimRow>,
}

impl Index {
    /// The overview as HTML.
    pub fn render(&self) -> String {
        let report = |entry: &Entry| {
            json!({
                "href": entry.href, "title": entry.title, "about": entry.about,
                "verdicts": Verdict::ALL.map(|v| tally(v, &entry.claims)),
            })
        };
        let content = json!({
            "title": self.title,
            "intro": paragraphs(&self.intro),
            "command": self.command,
            "version": self.version,
            "reports": self.reports.iter().map(report).collect::<Vec<_>>(),
            "css": CSS,
        });
        fill("index.html", content)
    }
}

fn tally(v: Verdict, claims: &[ClaimRow]) -> Value {
    let n = claims.iter().filter(|c| c.verdict == v).count();
    json!({ "class": v.class(), "name": v.word(), "sign": v.sign(), "count": n })
}

fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()).collect()
}

fn claim(c: &ClaimRow) -> Value {
    let mut row = json!(c);
    row["class"] = json!(c.verdict.class());
    row["word"] = json!(c.verdict.word());
    row["sign"] = json!(c.verdict.sign());
    row
}

fn shown(shown: &Shown) -> Value {
    let figure = &shown.figure;
    let drawn = svg::render(figure).unwrap_or_else(|e| format!("<p>This figure could not be drawn: {e}</p>"));
    json!({
        "id": figure.id,
        "title": figure.title,
        "caption": figure.caption,
        "svg": drawn,
        "data": in_script(&data(figure)),
        "runs": about_runs(&shown.runs),
        "command": shown.command,
    })
}

/// JSON that cannot end the `<script>` it stands in.
fn in_script(json: &Value) -> String {
    json.to_string().replace('<', "\\u003c")
}

/// A figure as `charts.js` reads it.
fn data(figure: &Figure) -> Value {
    let x = figure.x_span();
    let axis = |axis: &Axis, span: (f64, f64)| json!({ "label": axis.label, "log": axis.log, "span": span });
    let y_span = |right| figure.y_span(right, x);
    json!({
        "id": figure.id,
        "title": figure.title,
        "x": axis(&figure.x, x),
        "y": axis(&figure.y, y_span(false)),
        "right": figure.right.as_ref().map(|right| axis(right, y_span(true))),
        "bands": figure.bands.iter().map(|Band { from, to, label, stall }| json!({ "from": from, "to": to, "label": label, "stall": stall })).collect::<Vec<_>>(),
        "layers": figure.layers.iter().zip(figure.dashes()).map(layer).collect::<Vec<_>>(),
    })
}

fn layer((layer, dash): (&Layer, usize)) -> Value {
    let spread = layer.spread.as_ref();
    let column = |of: fn(&(f64, f64)) -> f64, points: &[(f64, f64)]| {
        numbers(&points.iter().map(of).collect::<Vec<_>>())
    };
    json!({
        "label": layer.label,
        "style": layer.style,
        "ink": layer.ink,
        "dash": dash,
        "right": layer.right_axis,
        "x": column(|p| p.0, &layer.points),
        "y": column(|p| p.1, &layer.points),
        "low": spread.map(|s| column(|p| p.0, s)),
        "high": spread.map(|s| column(|p| p.1, s)),
    })
}

/// Many numbers are written as whole steps of a ten-millionth of their extent, each from the one before: a third of the size.
fn numbers(values: &[f64]) -> Value {
    const FEW: usize = 4000;
    let extent = values.iter().fold(0.0f64, |e, v| e.max(v.abs()));
    if values.len() <= FEW || extent == 0.0 || !extent.is_finite() {
        return values.iter().map(|v| json!(format!("{v:.9e}").parse::<f64>().unwrap_or(*v))).collect();
    }
    let unit = 10f64.powi(extent.log10().ceil() as i32 - 7);
    let whole = values.iter().map(|v| (v / unit).round() as i64);
    let steps = whole.scan(0, |last, v| Some(v - std::mem::replace(last, v)));
    json!({ "unit": unit, "steps": steps.collect::<Vec<_>>() })
}

/// `fig10 on sim, 12 points, seeds 1–5`, and where the page says more about them.
fn about_runs(runs: &[RunKey]) -> Vec<Value> {
    let mut by_scenario: BTreeMap<(&str, &str), Vec<&RunKey>> = BTreeMap::new();
    for run in runs {
        by_scenario.entry((&run.name, &run.host)).or_default().push(run);
    }
    let about = |((name, host), runs): (&(&str, &str), &Vec<&RunKey>)| {
        let points: BTreeSet<&str> = runs.iter().map(|run| run.point.as_str()).collect();
        let about = format!("{name} on {host}, {}{}", which(&points), seeds(runs.iter().map(|run| run.seed)));
        json!({ "about": about, "anchor": anchor(name, host) })
    };
    by_scenario.iter().map(about).collect()
}

/// Points in a few words, to stand before the seeds.
fn which(points: &BTreeSet<&str>) -> String {
    match points.first() {
        Some(point) if points.len() == 1 && point.is_empty() => String::new(),
        Some(point) if points.len() == 1 => format!("{point}, "),
        _ => format!("{} points, ", points.len()),
    }
}

fn anchor(name: &str, host: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("runs-{name}-{host}").chars().map(safe).collect()
}

/// `seed 1`, `seeds 1–20`, `seeds 1, 3–5`.
fn seeds(seeds: impl Iterator<Item = u64>) -> String {
    let all: Vec<u64> = seeds.collect::<BTreeSet<u64>>().into_iter().collect();
    let run = |run: &[u64]| match (run[0], run[run.len() - 1]) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}–{last}"),
    };
    let runs: Vec<String> = all.chunk_by(|a, b| b - a == 1).map(run).collect();
    format!("seed{} {}", if all.len() == 1 { "" } else { "s" }, runs.join(", "))
}

/// The runs by scenario and host: tables of their flows and queues, parameters by point.
fn groups(runs: &[Run]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut groups: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| seen.insert(&run.key)) {
        groups.entry((&run.key.name, &run.key.host)).or_default().push(run);
    }
    groups.into_iter().map(|((name, host), runs)| group(name, host, &runs)).collect()
}

fn group(name: &str, host: &str, runs: &[&Run]) -> Value {
    let mut points: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    runs.iter().for_each(|run| points.entry(&run.key.point).or_default().push(run));
    let flow = |run: &Run, f: &FlowSummary| {
        json!({
            "point": run.key.point, "seed": run.key.seed, "name": f.name, "controller": f.controller,
            "goodput": rate(f.goodput_bps), "delivered": bytes(f.delivered_bytes as f64),
            "time": if f.completed { time(f.finished_at_s - f.started_at_s) } else { "not done".into() },
            "again": format!("{} ({})", count(f.retransmissions), share(f.retransmit_ratio)),
            "timeouts": count(f.rto_count),
            "stalls": if f.stalls == 0 { "0".into() } else { format!("{} ({})", f.stalls, time(f.stall_time_s)) },
            "rtt_median": time(f.rtt.p50), "rtt_high": time(f.rtt.p95),
        })
    };
    let queue = |run: &Run, q: &QueueSummary| {
        json!({
            "point": run.key.point, "seed": run.key.seed, "name": q.name, "arrived": count(q.arrived),
            "drops": count(q.drops), "marks": count(q.marks), "used": share(q.utilisation),
            "delay_median": time(q.delay.p50), "delay_high": time(q.delay.p95),
            "longest": bytes(q.backlog_max_bytes as f64),
        })
    };
    let parameters = |(point, runs): (&&str, &Vec<&Run>)| {
        let hash = |run: &&Run| json!({ "seed": run.key.seed, "hash": format!("{:016x}", run.trace_hash) });
        json!({ "point": point, "scenario": runs[0].scenario, "hashes": runs.iter().map(hash).collect::<Vec<_>>() })
    };
    let note = |run: &&Run| {
        let late = run.lateness.map(|late| {
            let [median, high, most] = [late.p50, late.p99, late.max].map(time);
            format!("What was due was late by {median} (median) and {high} (99 %), at most {most}")
        });
        let texts: Vec<String> = late.into_iter().chain(run.notes.iter().cloned()).collect();
        (!texts.is_empty()).then(|| json!({ "point": run.key.point, "seed": run.key.seed, "texts": texts }))
    };
    json!({
        "name": name,
        "notes": runs.iter().filter_map(note).collect::<Vec<_>>(),
        "host": host,
        "anchor": anchor(name, host),
        "about": format!("{}{}", which(&points.keys().copied().collect()), seeds(runs.iter().map(|r| r.key.seed))),
        "swept": points.len() > 1,
        "flows": runs.iter().flat_map(|run| run.flows.iter().map(move |f| flow(run, f))).collect::<Vec<_>>(),
        "queues": runs.iter().flat_map(|run| run.queues.iter().filter(|q| q.arrived > 0).map(move |q| queue(run, q))).collect::<Vec<_>>(),
        "parameters": points.iter().map(parameters).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
