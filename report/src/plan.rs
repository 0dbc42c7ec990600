//! Figure plans: a paper's `figures.toml` says which runs are drawn how, in the paper's own axes. [`parse`] reads the
//! notation and refuses what it does not know; [`Plan::draw`] picks runs and builds the [`Figure`](crate::figure::Figure).
//!
//! Two kinds exist. A *sweep* has a swept key on x, a flow's or queue's number on y, one curve per value of another key;
//! seeds are averaged and their spread is kept. A *time* figure lays series and events of one or more runs over time.
//!
//! ```toml
//! [[figure]]
//! id = "fig10"
//! title = "Fig. 10: throughput against the maximum window"
//! scenario = "fig10.toml"
//! kind = "sweep"
//! x = { key = "flow.bulk.window", label = "Maximum window (kbyte)", scale = 1e-3, range = [0, 350] }
//! y = { flow = "bulk", metric = "goodput_bps", label = "Throughput (Mbit/s)", scale = 1e-6 }
//! curve = "flow.bulk.controller"
//! curve_labels = { reno = "RE-TCP", becc = "BECC-TCP" }
//!
//! [[figure]]
//! id = "fig4"
//! title = "Fig. 4: the first loss"
//! scenario = "trace.toml"
//! kind = "time"
//! where = { "flow.bulk.controller" = "reno" }      # or ["reno", "becc"]: one of these
//! stalls = "bulk"
//! x = { label = "Time (s)", range = [0.24, 0.33] }
//! y = { label = "Sequence number (kbyte)", scale = 1e-3 }
//! layer = [
//!     { series = "bulk.seq_sent", style = "points", label = "sent" },
//!     { event = "bulk.drop", style = "open-circle", label = "lost" },
//!     { level = 65536, label = "window" },         # a value that holds all the time, in base units
//! ]
//! shade = [{ from = 0, to = 10, label = "UDP 20 Mbit/s" }]
//! ```

use crate::figure::{Axis, Ink, Mark, Style};
use narrows_lab::outcome::EventKind;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{Deserializer, IntoDeserializer};
use std::collections::{BTreeMap, BTreeSet};

mod draw;
pub(crate) use draw::{stall_band, stalls, swept};

/// A plan or a drawing that is refused, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// One figure to be drawn.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Short and unique in its file.
    pub id: String,
    /// The scenario file whose runs it draws.
    pub scenario: String,
    title: String,
    caption: String,
    picked: Picked,
    kind: Kind,
}

/// Which runs.
#[derive(Clone, Debug, Default)]
struct Picked {
    /// Sweep keys (or `host`) and the values of which they must have one.
    given: BTreeMap<String, Vec<String>>,
    seed: Option<u64>,
}

#[derive(Clone, Debug)]
enum Kind {
    Sweep {
        key: String,
        x: Scaled,
        measure: Measure,
        y: Scaled,
        curve: Option<String>,
        labels: BTreeMap<String, String>,
    },
    Time {
        x: Scaled,
        y: Scaled,
        right: Option<Scaled>,
        layers: Vec<TimeLayer>,
        shades: Vec<Shade>,
        stalls: Option<String>,
    },
}

/// An axis, and what base units are multiplied with to be drawn on it.
#[derive(Clone, Debug)]
struct Scaled {
    axis: Axis,
    scale: f64,
}

/// A number of a run.
#[derive(Clone, Debug)]
struct Measure {
    of: MeasureOf,
    /// A field of the summary; `rtt.p50` looks into a distribution.
    metric: String,
    /// How several flows become one number.
    over: Over,
}

#[derive(Clone, Debug)]
enum MeasureOf {
    /// Flows of that name, or beginning with it if it ends in `*`.
    Flow(String),
    Queue(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Over {
    #[default]
    Mean,
    Sum,
    Min,
    Max,
    /// Jain's index: (sum x)^2 / (n sum x^2).
    Jain,
}

#[derive(Clone, Debug)]
struct TimeLayer {
    source: Source,
    style: Style,
    label: String,
    ink: Option<Ink>,
    right: bool,
    scale: Option<f64>,
    picked: Picked,
}

#[derive(Clone, Debug)]
enum Source {
    Series { subject: String, quantity: String },
    Event { flow: String, kind: EventKind },
    Level(f64),
}

// The file as written.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    #[serde(default)]
    figure: Vec<FigureEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureEntry {
    id: String,
    title: String,
    #[serde(default)]
    caption: String,
    scenario: String,
    kind: KindName,
    #[serde(default, rename = "where")]
    picked: BTreeMap<String, toml::Value>,
    seed: Option<u64>,
    x: AxisEntry,
    y: AxisEntry,
    right: Option<AxisEntry>,
    curve: Option<String>,
    #[serde(default)]
    curve_labels: BTreeMap<String, String>,
    #[serde(default)]
    layer: Vec<LayerEntry>,
    #[serde(default)]
    shade: Vec<Shade>,
    stalls: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum KindName {
    Sweep,
    Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisEntry {
    label: String,
    #[serde(default = "one")]
    scale: f64,
    range: Option<(f64, f64)>,
    #[serde(default)]
    log: bool,
    key: Option<String>,
    flow: Option<String>,
    queue: Option<String>,
    metric: Option<String>,
    over: Option<Over>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerEntry {
    series: Option<String>,
    event: Option<String>,
    level: Option<f64>,
    #[serde(default, deserialize_with = "style")]
    style: Option<Style>,
    label: String,
    color: Option<Ink>,
    #[serde(default)]
    right: bool,
    scale: Option<f64>,
    #[serde(default, rename = "where")]
    picked: BTreeMap<String, toml::Value>,
    seed: Option<u64>,
}

/// A shaded interval of x, in the axis's units.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shade {
    from: f64,
    to: f64,
    #[serde(default)]
    label: String,
}

fn one() -> f64 {
    1.0
}

fn style<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Style>, D::Error> {
    let name = String::deserialize(d)?;
    let unknown = || format!("no style is called `{name}`; write one of: {}", Style::NAMES.join(", "));
    Style::by_name(&name).map(Some).ok_or_else(|| serde::de::Error::custom(unknown()))
}

/// Reads the plans in `text`; `file` names it in errors. Refuses unknown keys, styles, kinds and events, with the line.
pub fn parse(text: &str, file: &str) -> Result<Vec<Plan>, Refused> {
    let entries: FileEntry = toml::from_str(text).map_err(|e| Refused(format!("{file}: {e}")))?;
    let mut ids = BTreeSet::new();
    let plan = |entry: FigureEntry| {
        let at = format!("{file}: figure `{}`", entry.id);
        if !ids.insert(entry.id.clone()) {
            return Err(Refused(format!("{at} is there twice: give one of them another id")));
        }
        Plan::checked(entry).map_err(|why| Refused(format!("{at}: {why}")))
    };
    entries.figure.into_iter().map(plan).collect()
}

impl Plan {
    /// The seed whose run it draws, if it asks for one.
    pub fn seed(&self) -> Option<u64> {
        self.picked.seed
    }

    fn checked(entry: FigureEntry) -> Result<Plan, String> {
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if entry.id.is_empty() || !entry.id.chars().all(named) {
            return Err("an id names files: use only letters, digits, `-`, `_` and `.`".into());
        }
        let FigureEntry { id, title, caption, scenario, picked, seed, .. } = &entry;
        let (id, title, caption) = (id.clone(), title.clone(), caption.trim().to_owned());
        let (scenario, picked) = (scenario.clone(), Picked::new(picked, *seed));
        let kind = match entry.kind {
            KindName::Sweep => entry.sweep()?,
            KindName::Time => entry.time()?,
        };
        Ok(Plan { id, scenario, title, caption, picked, kind })
    }
}

impl FigureEntry {
    fn sweep(self) -> Result<Kind, String> {
        let belongs_to_time = [
            ("layer", !self.layer.is_empty()),
            ("shade", !self.shade.is_empty()),
            ("stalls", self.stalls.is_some()),
            ("right", self.right.is_some()),
        ];
        if let Some((key, _)) = belongs_to_time.iter().find(|(_, present)| *present) {
            return Err(format!(
                "`{key}` belongs to a figure of kind \"time\"; remove it or change the kind"
            ));
        }
        let key = self
            .x
            .key
            .clone()
            .ok_or("a sweep needs the swept key: x = { key = \"flow.NAME.window\", ... }")?;
        let metric = self.y.metric.clone();
        let metric =
            metric.ok_or("a sweep needs a number: y = { flow = \"NAME\", metric = \"goodput_bps\", ... }")?;
        let of = match (self.y.flow.clone(), self.y.queue.clone()) {
            (Some(flow), None) => MeasureOf::Flow(flow),
            (None, Some(queue)) => MeasureOf::Queue(queue),
            _ => return Err("y needs either flow = \"NAME\" or queue = \"FROM>TO\"".into()),
        };
        let measure = Measure { of, metric, over: self.y.over.unwrap_or_default() };
        let Scaled { axis: x, scale: x_scale } = self.x.axis("x", &["key"])?;
        let y = self.y.axis("y", &["flow", "queue", "metric", "over"])?;
        Ok(Kind::Sweep {
            key,
            x: Scaled { axis: x, scale: x_scale },
            measure,
            y,
            curve: self.curve,
            labels: self.curve_labels,
        })
    }

    fn time(self) -> Result<Kind, String> {
        if self.curve.is_some() || !self.curve_labels.is_empty() {
            return Err(
                "`curve` belongs to a figure of kind \"sweep\"; give each layer its own `where` instead"
                    .into(),
            );
        }
        if self.layer.is_empty() {
            return Err("a time figure needs [[figure.layer]] with series = \"flow.quantity\" or event = \"flow.kind\"".into());
        }
        if self.right.is_none() && self.layer.iter().any(|l| l.right) {
            return Err(
                "a layer has right = true, but there is no right axis: add right = { label = ... }".into()
            );
        }
        if let Some(shade) =
            self.shade.iter().find(|s| s.from.partial_cmp(&s.to) != Some(std::cmp::Ordering::Less))
        {
            return Err(format!(
                "shade from {} to {} is empty: `from` must be below `to`",
                shade.from, shade.to
            ));
        }
        Ok(Kind::Time {
            x: self.x.axis("x", &[])?,
            y: self.y.axis("y", &[])?,
            right: self.right.map(|r| r.axis("right", &[])).transpose()?,
            layers: self.layer.into_iter().map(LayerEntry::layer).collect::<Result<_, _>>()?,
            shades: self.shade,
            stalls: self.stalls,
        })
    }
}

impl AxisEntry {
    fn axis(self, name: &str, allowed: &[&str]) -> Result<Scaled, String> {
        let present = [
            ("key", self.key.is_some()),
            ("flow", self.flow.is_some()),
            ("queue", self.queue.is_some()),
            ("metric", self.metric.is_some()),
            ("over", self.over.is_some()),
        ];
        if let Some((key, _)) = present.iter().find(|(key, present)| *present && !allowed.contains(key)) {
            return Err(format!("`{name}.{key}` has no meaning in a figure of this kind; remove it"));
        }
        if !self.scale.is_finite() || self.scale == 0.0 {
            return Err(format!("{name}.scale is {}: write a factor such as 1e-6", self.scale));
        }
        if let Some((low, high)) = self.range {
            if !(low.is_finite() && high.is_finite() && low < high) {
                return Err(format!("{name}.range is [{low}, {high}]: the first number must be the smaller"));
            }
            if self.log && low <= 0.0 {
                return Err(format!("{name}.range begins at {low}: a logarithmic axis begins above zero"));
            }
        }
        Ok(Scaled { axis: Axis { label: self.label, range: self.range, log: self.log }, scale: self.scale })
    }
}

impl LayerEntry {
    fn layer(self) -> Result<TimeLayer, String> {
        let split = |text: &str, what: &str| match text.rsplit_once('.') {
            Some((subject, name)) if !subject.is_empty() => Ok((subject.to_owned(), name.to_owned())),
            _ => Err(format!("`{text}` names no {what}: write it as \"SUBJECT.{}\"", what.to_uppercase())),
        };
        let source = match (&self.series, &self.event, self.level) {
            (None, None, Some(level)) => Source::Level(level),
            (Some(series), None, None) => {
                let (subject, quantity) = split(series, "quantity")?;
                Source::Series { subject, quantity }
            }
            (None, Some(event), None) => {
                let (flow, kind) = split(event, "kind")?;
                Source::Event { flow, kind: event_kind(&kind)? }
            }
            _ => {
                let either =
                    "needs one of series = \"flow.quantity\", event = \"flow.kind\" and level = NUMBER";
                return Err(format!("layer `{}` {either}", self.label));
            }
        };
        let (usual, ink) = match source {
            Source::Series { .. } => (Style::Line, None),
            Source::Level(_) => (Style::Line, Some(Ink::Black)),
            Source::Event { kind, .. } => (Style::Marks(Mark::of(kind)), Some(Ink::of(kind))),
        };
        Ok(TimeLayer {
            source,
            style: self.style.unwrap_or(usual),
            label: self.label,
            ink: self.color.or(ink),
            right: self.right,
            scale: self.scale,
            picked: Picked::new(&self.picked, self.seed),
        })
    }
}

fn event_kind(name: &str) -> Result<EventKind, String> {
    let d: StrDeserializer<ValueError> = name.into_deserializer();
    EventKind::deserialize(d).map_err(|e| e.to_string())
}

impl Picked {
    fn new(given: &BTreeMap<String, toml::Value>, seed: Option<u64>) -> Picked {
        let written = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let one_of = |value: &toml::Value| match value.as_array() {
            Some(values) => values.iter().map(written).collect(),
            None => vec![written(value)],
        };
        Picked { given: given.iter().map(|(key, value)| (key.clone(), one_of(value))).collect(), seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: &str = r#"
        [[figure]]
        id = "fig10"
        title = "t"
        scenario = "fig10.toml"
        kind = "sweep"
        x = { key = "flow.bulk.window", label = "Window (kbyte)", scale = 1e-3, range = [0, 350] }
        y = { flow = "bulk", metric = "goodput_bps", label = "Throughput (Mbit/s)", scale = 1e-6 }
    "#;
    const TIME: &str = r#"
        [[figure]]
        id = "fig4"
        title = "t"
        scenario = "trace.toml"
        kind = "time"
        x = { label = "Time (s)" }
        y = { label = "Sequence number (kbyte)", scale = 1e-3 }
        [[figure.layer]]
        series = "bulk.seq_sent"
        style = "points"
        label = "sent"
        [[figure.layer]]
        event = "bulk.drop"
        label = "lost"
    "#;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let message = parse(text, "figures.toml").expect_err("refused").to_string();
        assert!(message.contains(expected) && message.contains("figures.toml"), "{message}");
    }

    #[test]
    fn both_kinds_are_read() {
        let plans = parse(&format!("{SWEEP}{TIME}"), "figures.toml").unwrap();
        assert_eq!(plans.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["fig10", "fig4"]);
        assert!(parse("", "figures.toml").unwrap().is_empty());
    }

    #[test]
    fn a_wrong_plan_gets_an_error_that_says_what_to_write() {
        refused(&SWEEP.replace("title =", "titel ="), "unknown field `titel`");
        refused(&TIME.replace("\"points\"", "\"dots\""), "write one of: line, step, points");
        refused(&TIME.replace("bulk.drop", "bulk.dropp"), "expected one of `drop`");
        refused(&TIME.replace("bulk.seq_sent", "seq_sent"), "\"SUBJECT.QUANTITY\"");
        refused(&TIME.replace("event = \"bulk.drop\"", ""), "one of series = \"flow.quantity\", event");
        let both = "event = \"bulk.drop\"\nlevel = 1e4";
        refused(&TIME.replace("event = \"bulk.drop\"", both), "and level = NUMBER");
        refused(&format!("{SWEEP}{SWEEP}"), "is there twice");
        refused(&SWEEP.replace("key = \"flow.bulk.window\",", ""), "needs the swept key");
        refused(&SWEEP.replace("flow = \"bulk\",", ""), "either flow");
        refused(&SWEEP.replace("[0, 350]", "[350, 0]"), "the first number must be the smaller");
        refused(&SWEEP.replace("[0, 350]", "[0, 350], log = true"), "begins above zero");
        refused(&SWEEP.replace("scale = 1e-3", "scale = 0"), "write a factor");
        refused(&SWEEP.replace("\"sweep\"", "\"time\""), "needs [[figure.layer]]");
        refused(&TIME.replace("\"time\"", "\"sweep\""), "`layer` belongs to a figure of kind \"time\"");
        refused(&TIME.replace("label = \"lost\"", "label = \"lost\"\nright = true"), "no right axis");
        refused(&SWEEP.replace("id = \"fig10\"", "id = \"fig/10\""), "an id names files");
    }
}
