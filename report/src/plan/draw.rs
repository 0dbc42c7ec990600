//! From runs to a figure: picks the runs a plan asks for, refuses to mix what must not be mixed, scales to the axes.

use super::{Kind, Measure, MeasureOf, Over, Picked, Plan, Refused, Scaled, Shade, Source, TimeLayer};
use crate::figure::{Axis, Band, Figure, Ink, Layer, Mark, RunKey, Shown, Style, point};
use narrows_core::units::{Bytes, Rate};
use narrows_lab::Outcome;
use narrows_lab::outcome::{Event, FlowSummary, Series};
use narrows_lab::quantity::{Amount, Quantity};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Plan {
    /// Draws the figure from the runs of its scenario. Refused if no run fits, if a flow, series or number does not exist,
    /// or if one point would mix runs that differ in more than their seed. Runs of several hosts lie on one figure, each curve
    /// once per host; over time, only where that leaves at most four curves, otherwise the first run's host is drawn.
    pub fn draw(&self, runs: &[Outcome]) -> Result<Shown, Refused> {
        let runs: Vec<&Outcome> = runs.iter().collect();
        let mut figure = Figure {
            id: self.id.clone(),
            title: self.title.clone(),
            caption: self.caption.clone(),
            ..Figure::default()
        };
        let mut used = BTreeSet::new();
        let drawn = match &self.kind {
            Kind::Sweep { key, x, measure, y, curve, labels } => {
                figure.x = x.axis.clone();
                figure.y = y.axis.clone();
                let sweep =
                    Sweep { key, measure, curve: curve.as_deref(), labels, scale: (x.scale, y.scale) };
                self.picked.choose(&runs).and_then(|runs| sweep.layers(&runs, &mut used))
            }
            Kind::Time { x, y, right, layers, shades, stalls } => {
                figure.x = x.axis.clone();
                figure.y = y.axis.clone();
                figure.right = right.as_ref().map(|r| r.axis.clone());
                figure.bands = shades.iter().map(Shade::band).collect();
                let scales = (x, y, right.as_ref());
                self.stall_bands(stalls.as_deref(), &runs, x.scale)
                    .map(|bands| figure.bands.extend(bands))
                    .and_then(|()| {
                        let hosts = hosts(&runs);
                        let drawn =
                            if layers.len() * hosts.len() <= 4 { hosts.len() } else { hosts.len().min(1) };
                        let pairs = hosts[..drawn].iter().flat_map(|h| layers.iter().map(move |l| (*h, l)));
                        let inks = Ink::FOR_LAYERS.into_iter().cycle();
                        let draw = |((host, layer), ink): ((&str, &TimeLayer), Ink)| {
                            let of_host = runs.iter().copied().filter(|r| r.host == host).collect::<Vec<_>>();
                            let mut drawn = layer.draw(ink, &self.picked, &of_host, scales, &mut used)?;
                            if hosts.len() > 1 {
                                drawn.label = labelled(&drawn.label, host);
                            }
                            Ok(drawn)
                        };
                        pairs.zip(inks).map(draw).collect()
                    })
            }
        };
        figure.layers =
            drawn.map_err(|why| Refused(format!("figure `{}` of {}: {why}", self.id, self.scenario)))?;
        // Another host may do elsewhere in time what a close-up shows: then the whole is shown, not an empty frame.
        let within = |(low, high): (f64, f64)| {
            figure.layers.iter().flat_map(|l| &l.points).any(|p| (low..=high).contains(&p.0))
        };
        if figure.x.range.is_some_and(|range| !within(range)) {
            figure.x.range = None;
        }
        Ok(Shown { figure, runs: used.into_iter().collect(), command: String::new() })
    }

    fn stall_bands(&self, flow: Option<&str>, runs: &[&Outcome], scale: f64) -> Result<Vec<Band>, String> {
        let Some(flow) = flow else { return Ok(Vec::new()) };
        let first = hosts(runs).into_iter().next().unwrap_or_default();
        let of_first = runs.iter().copied().filter(|r| r.host == first).collect::<Vec<_>>();
        let run = self.picked.choose_one(&of_first)?;
        let summary = run.flow(flow).ok_or_else(|| no_flow(run, flow))?;
        Ok(stalls(run, summary).into_iter().map(|gap| stall_band(gap, scale)).collect())
    }
}

/// The hosts the runs are of, in order.
fn hosts<'a>(runs: &[&'a Outcome]) -> Vec<&'a str> {
    let mut hosts = Vec::new();
    for run in runs {
        if !hosts.contains(&run.host.as_str()) {
            hosts.push(run.host.as_str());
        }
    }
    hosts
}

/// A curve's label where there are several hosts.
fn labelled(label: &str, host: &str) -> String {
    if label.is_empty() { host.to_owned() } else { format!("{label}, {host}") }
}

/// The shade of one stall, `scale` times seconds wide.
pub(crate) fn stall_band((from, to): (f64, f64), scale: f64) -> Band {
    Band { from: from * scale, to: to * scale, label: format!("stall {:.2} s", to - from), stall: true }
}

impl Shade {
    fn band(&self) -> Band {
        Band { from: self.from, to: self.to, label: self.label.clone(), stall: false }
    }
}

impl Picked {
    fn fits(&self, run: &Outcome) -> bool {
        self.seed.is_none_or(|seed| run.seed == seed)
            && self.given.iter().all(|(key, wanted)| match run.given.get(key) {
                Some(value) => wanted.iter().any(|w| same_value(value, w)),
                None => key == "host" && wanted.contains(&run.host),
            })
    }

    /// All runs that fit.
    fn choose<'a>(&self, runs: &[&'a Outcome]) -> Result<Vec<&'a Outcome>, String> {
        let fitting: Vec<_> = runs.iter().copied().filter(|run| self.fits(run)).collect();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let mut wanted: Vec<String> =
            self.given.iter().map(|(key, values)| format!("{key} = {}", values.join(" or "))).collect();
        wanted.extend(self.seed.map(|seed| format!("seed {seed}")));
        let there: BTreeSet<String> =
            runs.iter().map(|run| format!("{}, seed {}", point(run), run.seed)).collect();
        let there: Vec<String> = there.into_iter().take(6).collect();
        Err(format!("no run has {}; there are: {}", wanted.join(", "), there.join("; ")))
    }

    /// The first run that fits; what fits may differ in nothing but the seed.
    fn choose_one<'a>(&self, runs: &[&'a Outcome]) -> Result<&'a Outcome, String> {
        let fitting = self.choose(runs)?;
        let first = fitting[0];
        match fitting.iter().find_map(|run| first_difference(first, run, &[])) {
            None => Ok(first),
            Some(key) => Err(format!(
                "several runs fit, and they differ in `{key}`: choose one with where = {{ \"{key}\" = \"{}\" }}",
                first.given.get(&key).map_or("...", String::as_str)
            )),
        }
    }

    /// These conditions, and `more` in place of those with the same key.
    fn and(&self, more: &Picked) -> Picked {
        let mut both = self.clone();
        both.given.extend(more.given.clone());
        both.seed = more.seed.or(self.seed);
        both
    }
}

/// The first sweep key, other than `besides`, in which two runs differ.
fn first_difference(a: &Outcome, b: &Outcome, besides: &[&str]) -> Option<String> {
    let keys: BTreeSet<&String> = a.given.keys().chain(b.given.keys()).collect();
    let differs = |key: &&String| !besides.contains(&key.as_str()) && a.given.get(*key) != b.given.get(*key);
    keys.into_iter().find(differs).cloned()
}

/// `220kB` is `220000B`.
fn same_value(a: &str, b: &str) -> bool {
    a == b || matches!((base_number(a), base_number(b)), (Some(a), Some(b)) if a == b)
}

struct Sweep<'a> {
    key: &'a str,
    measure: &'a Measure,
    curve: Option<&'a str>,
    labels: &'a BTreeMap<String, String>,
    scale: (f64, f64),
}

/// The runs at one x of a curve, and what they measured.
struct At<'a> {
    first: &'a Outcome,
    values: Vec<f64>,
}

impl Sweep<'_> {
    fn layers(&self, runs: &[&Outcome], used: &mut BTreeSet<RunKey>) -> Result<Vec<Layer>, String> {
        // Curves in the order in which the sweep lists them, host by host; points in order of x.
        let several = hosts(runs).len() > 1;
        let mut curves: Vec<(String, Vec<(f64, At)>)> = Vec::new();
        for run in runs {
            let (curve, x) = (self.curve.map_or(Ok(String::new()), |key| given(run, key))?, self.x(run)?);
            let value = self.measure.of(run)?;
            let curve = self.labels.get(&curve).cloned().unwrap_or(curve);
            let curve = if several { labelled(&curve, &run.host) } else { curve };
            let at = match curves.iter().position(|(name, _)| *name == curve) {
                Some(at) => at,
                None => {
                    curves.push((curve, Vec::new()));
                    curves.len() - 1
                }
            };
            let points = &mut curves[at].1;
            match points.iter_mut().find(|(other, _)| *other == x) {
                Some((_, at)) => {
                    if let Some(key) =
                        first_difference(at.first, run, &[self.key, self.curve.unwrap_or_default()])
                    {
                        return Err(format!(
                            "runs at one point differ in `{key}` too: choose with where = {{ \"{key}\" = ... }}, or make it the curve"
                        ));
                    }
                    at.values.push(value);
                }
                None => points.push((x, At { first: run, values: vec![value] })),
            }
            used.insert(RunKey::of(run));
        }
        let looks = Mark::FOR_CURVES.into_iter().cycle().zip(Ink::FOR_LAYERS.into_iter().cycle());
        Ok(curves
            .into_iter()
            .zip(looks)
            .map(|((label, points), look)| self.layer(label, points, look))
            .collect())
    }

    fn layer(&self, label: String, mut points: Vec<(f64, At)>, (mark, ink): (Mark, Ink)) -> Layer {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (x_scale, y_scale) = self.scale;
        let ends = |at: &At| {
            let (low, high) = (Over::Min.apply(&at.values) * y_scale, Over::Max.apply(&at.values) * y_scale);
            (low.min(high), low.max(high))
        };
        let several = points.iter().any(|(_, at)| at.values.len() > 1);
        Layer {
            label,
            style: Style::Curve(mark),
            ink,
            right_axis: false,
            spread: several.then(|| points.iter().map(|(_, at)| ends(at)).collect()),
            points: points
                .iter()
                .map(|(x, at)| (x * x_scale, Over::Mean.apply(&at.values) * y_scale))
                .collect(),
        }
    }

    fn x(&self, run: &Outcome) -> Result<f64, String> {
        let written = given(run, self.key)?;
        let not_a_number = || {
            format!("`{}` takes the value `{written}`, which is no number: it cannot be an x axis", self.key)
        };
        base_number(&written).ok_or_else(not_a_number)
    }
}

/// Mean goodput over the first swept number, a curve per value of the first other swept key. `None` if nothing was swept
/// that can be an axis, or if more was swept than one figure shows.
pub(crate) fn swept(runs: &[Outcome]) -> Option<Shown> {
    let differs = |key: &&String| runs.iter().any(|run| run.given.get(*key) != runs[0].given.get(*key));
    let keys: Vec<&String> = runs.first()?.given.keys().filter(differs).collect();
    let is_number = |key: &&&String| {
        runs.iter().all(|run| run.given.get(**key).is_some_and(|v| base_number(v).is_some()))
    };
    let key = *keys.iter().find(is_number)?;
    let curve = keys.iter().find(|other| **other != key).map(|other| other.as_str());
    let measure = Measure { of: MeasureOf::Flow("*".into()), metric: "goodput_bps".into(), over: Over::Mean };
    let sweep = Sweep { key, measure: &measure, curve, labels: &BTreeMap::new(), scale: (1.0, 1e-6) };
    let mut used = BTreeSet::new();
    let layers = sweep.layers(&runs.iter().collect::<Vec<_>>(), &mut used).ok()?;
    let axis = |label: &str| Axis { label: label.into(), ..Axis::default() };
    let figure = Figure {
        id: "sweep".into(),
        title: format!("Goodput against {key}"),
        caption: "The mean over the flows of a run; bars reach from the worst to the best seed.".into(),
        x: axis(key),
        y: axis("Goodput (Mbit/s)"),
        layers,
        ..Figure::default()
    };
    Some(Shown { figure, runs: used.into_iter().collect(), command: String::new() })
}

fn given(run: &Outcome, key: &str) -> Result<String, String> {
    let swept = || run.given.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let missing = || format!("the runs do not sweep `{key}`; swept are: {}", swept());
    run.given.get(key).cloned().ok_or_else(missing)
}

impl Measure {
    fn of(&self, run: &Outcome) -> Result<f64, String> {
        let values = match &self.of {
            MeasureOf::Flow(name) => {
                let wanted = |flow: &FlowSummary| match name.strip_suffix('*') {
                    Some(start) => flow.name.starts_with(start),
                    None => flow.name == *name,
                };
                let flows = run.flows.iter().filter(|flow| wanted(flow));
                let values = flows.map(|flow| number(&serde_json::to_value(flow), &self.metric));
                values.collect::<Result<Vec<_>, _>>()?
            }
            MeasureOf::Queue(name) => {
                let queues = run.queues.iter().filter(|queue| queue.name == *name);
                let values = queues.map(|queue| number(&serde_json::to_value(queue), &self.metric));
                values.collect::<Result<Vec<_>, _>>()?
            }
        };
        match (&self.of, values.is_empty()) {
            (_, false) => Ok(self.over.apply(&values)),
            (MeasureOf::Flow(name), _) => Err(no_flow(run, name)),
            (MeasureOf::Queue(name), _) => Err(format!(
                "no queue is called `{name}`; there are: {}",
                list(run.queues.iter().map(|q| &q.name))
            )),
        }
    }
}

impl Over {
    fn apply(self, values: &[f64]) -> f64 {
        let (sum, n) = (values.iter().sum::<f64>(), values.len() as f64);
        match self {
            Over::Mean => sum / n,
            Over::Sum => sum,
            Over::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Over::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Over::Jain => match values.iter().map(|v| v * v).sum::<f64>() {
                0.0 => 1.0,
                squares => sum * sum / (n * squares),
            },
        }
    }
}

/// The number at a dotted path into a summary.
fn number(summary: &Result<Value, serde_json::Error>, path: &str) -> Result<f64, String> {
    let summary = summary.as_ref().map_err(ToString::to_string)?;
    let mut at = summary;
    for part in path.split('.') {
        let names = || at.as_object().map(|o| list(o.keys())).unwrap_or_default();
        at = at.get(part).ok_or_else(|| format!("there is no metric `{path}`; there are: {}", names()))?;
    }
    let parts = || at.as_object().map(|o| list(o.keys().map(|k| format!("{path}.{k}")))).unwrap_or_default();
    at.as_f64()
        .or_else(|| at.as_bool().map(|b| f64::from(u8::from(b))))
        .ok_or_else(|| format!("metric `{path}` is no number; write one of: {}", parts()))
}

type Scales<'a> = (&'a Scaled, &'a Scaled, Option<&'a Scaled>);

impl TimeLayer {
    fn draw(
        &self,
        next: Ink,
        figure: &Picked,
        runs: &[&Outcome],
        (x, y, right): Scales,
        used: &mut BTreeSet<RunKey>,
    ) -> Result<Layer, String> {
        let run =
            figure.and(&self.picked).choose_one(runs).map_err(|e| format!("layer `{}`: {e}", self.label))?;
        used.insert(RunKey::of(run));
        let points: Vec<(f64, f64)> = match &self.source {
            Source::Series { subject, quantity } => {
                run.series(subject, quantity).ok_or_else(|| no_series(run, subject, quantity))?.points.clone()
            }
            Source::Level(level) => vec![(0.0, *level), (run.ended_at_s, *level)],
            Source::Event { flow, kind } => {
                run.flow(flow).ok_or_else(|| no_flow(run, flow))?;
                let wanted = |e: &&Event| e.kind == *kind && e.flow == *flow;
                run.events.iter().filter(wanted).map(|e| (e.time_s, e.value)).collect()
            }
        };
        let axis = if self.right { right.unwrap_or(y) } else { y };
        let y_scale = self.scale.unwrap_or(axis.scale);
        Ok(Layer {
            label: self.label.clone(),
            style: self.style,
            ink: self.ink.unwrap_or(next),
            right_axis: self.right,
            points: points.into_iter().map(|(t, v)| (t * x.scale, v * y_scale)).collect(),
            spread: None,
        })
    }
}

/// Times in which a flow had data outstanding and nothing was newly acknowledged for more than 250 ms and four minimum
/// RTTs: from the last advance to the next one, or to the end of the run.
pub(crate) fn stalls(run: &Outcome, flow: &FlowSummary) -> Vec<(f64, f64)> {
    let Some(acked) = run.series(&flow.name, "ack_received") else { return Vec::new() };
    let sent = run.series(&flow.name, "seq_sent").map_or(&[][..], |s: &Series| &s.points);
    let shortest = f64::max(0.25, 4.0 * flow.rtt.min);
    let end = if flow.completed { flow.finished_at_s } else { run.ended_at_s };
    let advances = advances(&acked.points);
    let nexts = advances.iter().skip(1).map(|p| p.0).chain([end]);
    let (mut gaps, mut sent_so_far, mut highest) = (Vec::new(), sent.iter().peekable(), f64::NEG_INFINITY);
    for (&(from, ack), to) in advances.iter().zip(nexts) {
        while let Some(p) = sent_so_far.next_if(|p| p.0 <= from) {
            highest = highest.max(p.1);
        }
        // A segment's series value may be its first offset: one that starts at or after the ACK is outstanding.
        let outstanding = sent.is_empty() || highest >= ack || !flow.completed;
        if to - from > shortest && outstanding && (to < end || !flow.completed) {
            gaps.push((from, to));
        }
    }
    gaps
}

/// The points at which the value rose above all before.
fn advances(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut highest = f64::NEG_INFINITY;
    let rises = |p: &&(f64, f64)| {
        let rose = p.1 > highest;
        highest = highest.max(p.1);
        rose
    };
    points.iter().filter(rises).copied().collect()
}

fn no_flow(run: &Outcome, name: &str) -> String {
    format!("no flow is called `{name}`; there are: {}", list(run.flows.iter().map(|f| &f.name)))
}

fn no_series(run: &Outcome, subject: &str, quantity: &str) -> String {
    let of_subject: Vec<&Series> = run.series.iter().filter(|s| s.subject == subject).collect();
    if of_subject.is_empty() {
        let subjects: BTreeSet<&String> = run.series.iter().map(|s| &s.subject).collect();
        return format!("nothing was recorded of `{subject}`; there are series of: {}", list(subjects));
    }
    let there = list(of_subject.iter().map(|s| &s.quantity));
    format!("`{quantity}` of `{subject}` was not recorded; there are: {there}")
}

fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| n.as_ref().to_owned()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// A swept value in base units: bit/s, seconds, bytes, packets, BDPs, or as it is. `None` if it is no number.
fn base_number(text: &str) -> Option<f64> {
    let rate = || Rate::read(text).map(|rate| rate.0 as f64);
    let time = || Duration::read(text).map(|time| time.as_secs_f64());
    let size = || {
        Amount::read(text).map(|amount| match amount {
            Amount::Bytes(Bytes(n)) | Amount::Packets(n) => n as f64,
            Amount::Bdp(n) => n,
        })
    };
    text.trim().parse().ok().or_else(|| rate().or_else(|_| time()).or_else(|_| size()).ok())
}

#[cfg(test)]
mod tests;
