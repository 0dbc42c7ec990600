//! `claims.toml` as written, and its way to checked [`Claim`]s. Values parse themselves, so that the error points at them.

use super::*;
use crate::metric::{self, Change, Subject};
use serde::de::{Deserializer, Error as _};
use std::fmt;
use toml::Spanned;

/// A closed range, open sides allowed: `["8 Mbit/s", "15 Mbit/s"]`, `["-", "5 %"]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// The smallest value inside.
    pub low: Option<Number>,
    /// The largest value inside.
    pub high: Option<Number>,
}

impl Interval {
    /// The unit of its sides; `None` if both are open.
    pub fn unit(&self) -> Option<Unit> {
        self.low.or(self.high).map(|a| a.unit)
    }

    /// Whether a value in base units of [`Interval::unit`] lies inside; bounds typed in decimals are met to 1e-9.
    pub fn contains(&self, value: f64) -> bool {
        let above = |low: Number| value >= low.value - 1e-9 * low.value.abs();
        let below = |high: Number| value <= high.value + 1e-9 * high.value.abs();
        self.low.is_none_or(above) && self.high.is_none_or(below)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (Some(low), Some(high)) if low == high => write!(f, "{low}"),
            (Some(low), Some(high)) => write!(f, "{low} to {high}"),
            (Some(low), None) => write!(f, "at least {low}"),
            (None, Some(high)) => write!(f, "at most {high}"),
            (None, None) => write!(f, "anything"),
        }
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Interval, D::Error> {
        let advice =
            "write two values, the smaller first, `\"-\"` for an open side: [\"8 Mbit/s\", \"15 Mbit/s\"]";
        let side = |v: &toml::Value| match v.as_str() {
            Some("-") => Ok(None),
            _ => v.clone().try_into::<Number>().map(Some).map_err(|e| D::Error::custom(e.message())),
        };
        match toml::Value::deserialize(d)? {
            toml::Value::Array(sides) if sides.len() == 2 => {
                let interval = Interval { low: side(&sides[0])?, high: side(&sides[1])? };
                match (interval.low, interval.high) {
                    (Some(low), Some(high)) if low.unit != high.unit => {
                        Err(D::Error::custom(format!("{low} and {high} have different units: {advice}")))
                    }
                    (Some(low), Some(high)) if low.value > high.value => {
                        Err(D::Error::custom(format!("{low} is above {high}: {advice}")))
                    }
                    _ => Ok(interval),
                }
            }
            other => Err(D::Error::custom(format!("`{other}` is not a range: {advice}"))),
        }
    }
}

/// What a swept key must be: a value, or a range.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Equal, as a quantity if both are one, else as text.
    Is(String),
    /// A quantity within.
    Within(Interval),
}

impl Condition {
    /// Whether a sweep's value, as it was written, satisfies it.
    pub fn admits(&self, given: &str) -> bool {
        let given = given.trim().trim_matches('"');
        let quantity = given.parse::<Number>();
        match self {
            Condition::Within(range) => {
                quantity.is_ok_and(|q| range.unit().is_none_or(|u| u == q.unit) && range.contains(q.value))
            }
            Condition::Is(text) => match (text.parse::<Number>(), quantity) {
                (Ok(a), Ok(b)) => a.unit == b.unit && (a.value - b.value).abs() <= 1e-9 * a.value.abs(),
                _ => text == given,
            },
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Is(text) => write!(f, "{text}"),
            Condition::Within(range) => write!(f, "{range}"),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Condition, D::Error> {
        match toml::Value::deserialize(d)? {
            toml::Value::String(s) => Ok(Condition::Is(s)),
            range @ toml::Value::Array(_) => {
                range.try_into().map(Condition::Within).map_err(|e| D::Error::custom(e.message()))
            }
            other => Ok(Condition::Is(other.to_string())),
        }
    }
}

/// `metric = "goodput"` or `"code.becc.bandwidth_window"`.
#[derive(Clone, Debug)]
enum MetricName {
    Run(&'static Metric),
    Code(String),
}

impl<'de> Deserialize<'de> for MetricName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<MetricName, D::Error> {
        let name = String::deserialize(d)?;
        if let Some(of_code) = name.strip_prefix("code.") {
            return Ok(MetricName::Code(of_code.into()));
        }
        metric::by_name(&name).map(MetricName::Run).ok_or_else(|| {
            let unknown = Refusal::unknown("metric", &name, metric::REGISTRY.iter().map(|m| m.name));
            D::Error::custom(format!(
                "{}
{}",
                unknown.message, unknown.advice
            ))
        })
    }
}

pub(super) fn one_seed() -> RangeInclusive<u64> {
    1..=1
}

pub(super) fn seeds<'de, D: Deserializer<'de>>(d: D) -> Result<RangeInclusive<u64>, D::Error> {
    let text = String::deserialize(d)?;
    let ends =
        text.split_once("..").and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    match ends {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err(D::Error::custom(format!("`{text}` is not a range of seeds: write for example \"1..10\""))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    paper: Header,
    #[serde(default)]
    claim: Vec<WrittenClaim>,
}

/// Declares a table of the file: its own keys, and those that say what is measured, which every table may name again.
macro_rules! table {
    ($name:ident { $($key:ident: $type:ty $(= $default:literal)?),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($(#[serde(default = $default)])? $key: $type,)*
            scenario: Option<String>,
            #[serde(default, rename = "where")]
            filter: BTreeMap<String, Condition>,
            metric: Option<MetricName>,
            flow: Option<String>,
            queue: Option<String>,
            series: Option<String>,
            window: Option<Interval>,
            band: Option<Interval>,
            bin: Option<Number>,
            change: Option<Change>,
            arguments: Option<Vec<Number>>,
            x: Option<String>,
            reduce: Option<Reduce>,
            #[serde(default)]
            against: OneOrMany,
        }
        impl $name {
            fn wording(&self) -> Wording {
                Wording {
                    scenario: self.scenario.clone(),
                    filter: self.filter.clone(),
                    metric: self.metric.clone(),
                    flow: self.flow.clone(),
                    queue: self.queue.clone(),
                    options: Options {
                        series: self.series.clone(),
                        window: self.window,
                        band: self.band,
                        bin: self.bin,
                        change: self.change,
                        arguments: self.arguments.clone(),
                    },
                    x: self.x.clone(),
                    reduce: self.reduce,
                }
            }
        }
    };
}

table!(WrittenClaim {
    id: Spanned<String>,
    source: String,
    text: String,
    read_from: ReadFrom,
    reported: String,
    accept: Interval,
    hosts: Vec<String> = "sim_only",
    recorded: BTreeMap<String, Verdict> = "BTreeMap::new",
    reason: Reasons = "Reasons::default",
    also: Vec<Also> = "Vec::new",
});
table!(Also { accept: Interval });
table!(WrittenAgainst { r#as: Comparison, each: bool = "bool::default" });

fn sim_only() -> Vec<String> {
    vec!["sim".into()]
}

/// `against = { ... }` or `against = [{ ... }, { ... }]`.
#[derive(Default)]
struct OneOrMany(Vec<WrittenAgainst>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<OneOrMany, D::Error> {
        let value = toml::Value::deserialize(d)?;
        let list = if value.is_array() { value } else { toml::Value::Array(vec![value]) };
        list.try_into().map(OneOrMany).map_err(|e| D::Error::custom(format!("against: {}", e.message())))
    }
}

/// What a table says about what is measured; what it leaves out it takes from the table around it.
#[derive(Clone)]
struct Wording {
    scenario: Option<String>,
    filter: BTreeMap<String, Condition>,
    metric: Option<MetricName>,
    flow: Option<String>,
    queue: Option<String>,
    options: Options,
    x: Option<String>,
    reduce: Option<Reduce>,
}

/// What refines a metric; another metric starts without.
#[derive(Clone, Default)]
struct Options {
    series: Option<String>,
    window: Option<Interval>,
    band: Option<Interval>,
    bin: Option<Number>,
    change: Option<Change>,
    arguments: Option<Vec<Number>>,
}

impl Wording {
    fn within(self, around: &Wording) -> Wording {
        let inherited = if self.metric.is_some() { Options::default() } else { around.options.clone() };
        let own_subject = self.flow.is_some() || self.queue.is_some();
        let mut filter = around.filter.clone();
        filter.extend(self.filter);
        Wording {
            scenario: self.scenario.or_else(|| around.scenario.clone()),
            filter,
            metric: self.metric.or_else(|| around.metric.clone()),
            flow: if own_subject { self.flow } else { around.flow.clone() },
            queue: if own_subject { self.queue } else { around.queue.clone() },
            options: Options {
                series: self.options.series.or(inherited.series),
                window: self.options.window.or(inherited.window),
                band: self.options.band.or(inherited.band),
                bin: self.options.bin.or(inherited.bin),
                change: self.options.change.or(inherited.change),
                arguments: self.options.arguments.or(inherited.arguments),
            },
            x: self.x.or_else(|| around.x.clone()),
            reduce: self.reduce.or(around.reduce),
        }
    }

    fn measurement(&self, against: Vec<Against>) -> Result<Measurement, String> {
        let metric =
            self.metric.as_ref().ok_or("metric is missing: write for example metric = \"goodput\"")?;
        let quantity = match metric {
            MetricName::Code(name) => {
                let arguments = self.options.arguments.iter().flatten().map(|a| a.value).collect();
                Quantity::Code(name.clone(), arguments)
            }
            MetricName::Run(metric) => Quantity::Run(metric, self.ask(metric)?),
        };
        if matches!(quantity, Quantity::Run(..)) && self.scenario.is_none() {
            return Err("scenario is missing: write for example scenario = \"fig10.toml\"".into());
        }
        let scenario = self.scenario.clone().filter(|_| matches!(quantity, Quantity::Run(..)));
        let (filter, x, reduce) = (self.filter.clone(), self.x.clone(), self.reduce.unwrap_or_default());
        Ok(Measurement { scenario, filter, quantity, x, reduce, against })
    }

    fn ask(&self, metric: &Metric) -> Result<Ask, String> {
        let o = &self.options;
        for (option, given) in [
            ("series", o.series.is_some()),
            ("window", o.window.is_some()),
            ("band", o.band.is_some()),
            ("bin", o.bin.is_some()),
            ("change", o.change.is_some()),
            ("arguments", o.arguments.is_some()),
        ] {
            let known =
                metric.options.contains(&option) || (option == "series" && metric.subject == Subject::Series);
            if given && !known {
                return Err(format!("metric {} takes no `{option}`: leave it out", metric.name));
            }
        }
        match metric.subject {
            Subject::FlowAtQueue if self.flow.is_none() || self.queue.is_none() => {
                return Err(format!(
                    "metric {} is of a flow and a queue: write for example flow = \"bulk\", queue = \"r1>r2\"",
                    metric.name
                ));
            }
            Subject::Flow | Subject::Flows if self.flow.is_none() => {
                return Err(format!(
                    "metric {} is of a flow: write for example flow = \"bulk\"",
                    metric.name
                ));
            }
            Subject::Queue if self.queue.is_none() => {
                return Err(format!(
                    "metric {} is of a queue: write for example queue = \"r1>r2\"",
                    metric.name
                ));
            }
            Subject::Series if o.series.is_none() || (self.flow.is_none() && self.queue.is_none()) => {
                return Err(format!(
                    "metric {} is of a series: write for example flow = \"bulk\", series = \"cwnd\"",
                    metric.name
                ));
            }
            _ => {}
        }
        let seconds = |name: &str, a: Option<Number>| match a {
            Some(a) if a.unit != Unit::Second => {
                Err(format!("{name} is a time: write for example \"{}s\"", a.value))
            }
            a => Ok(a.map(|a| a.value)),
        };
        let span = |name: &str, i: Option<Interval>| {
            let i = i.unwrap_or_default();
            Ok::<_, String>((seconds(name, i.low)?, seconds(name, i.high)?))
        };
        let bin = seconds("bin", o.bin)?;
        if bin.is_some_and(|b| b <= 0.0) {
            return Err("bin must be longer than zero: write for example \"30ms\"".into());
        }
        Ok(Ask {
            flow: self.flow.clone(),
            queue: self.queue.clone().filter(|_| !matches!(metric.subject, Subject::Flow | Subject::Flows)),
            series: o.series.clone(),
            window: span("window", o.window)?,
            band: span("band", o.band)?,
            bin,
            change: o.change.unwrap_or_default(),
        })
    }
}

fn against(written: &OneOrMany, around: &Wording) -> Result<Vec<Against>, String> {
    let of = |a: &WrittenAgainst| {
        let wording = a.wording().within(around);
        let with = wording.measurement(against(&a.against, &wording)?)?;
        Ok(Against { comparison: a.r#as, each: a.each, with })
    };
    written.0.iter().map(of).collect()
}

fn check(accept: Interval, wording: &Wording, written: &OneOrMany) -> Result<Check, String> {
    let measurement = wording.measurement(against(written, wording)?)?;
    match (accept.unit(), measurement.unit()) {
        (None, _) => Err("accept is open on both sides: give one of them".into()),
        (Some(typed), Some(needed)) if typed != needed => Err(format!(
            "accept ({accept}) is not in the metric's unit: {} is {}",
            measurement.title(),
            if needed == Unit::One { "a bare number or %".into() } else { format!("in {}", needed.sign()) }
        )),
        _ => Ok(Check { accept, measurement }),
    }
}

fn claim(w: WrittenClaim) -> Result<Claim, String> {
    let wording = w.wording();
    let mut checks = vec![check(w.accept, &wording, &w.against)?];
    for also in &w.also {
        checks.push(check(also.accept, &also.wording().within(&wording), &also.against)?);
    }
    let differs = w.recorded.iter().filter(|(_, v)| **v == Verdict::Differs);
    if let Some((host, _)) = differs.into_iter().find(|(host, _)| w.reason.on(host).is_none()) {
        return Err(format!(
            "a recorded verdict on {host} is \"differs\": write the reason beside it, reason = \"...\" or reason = {{ {host} = \"...\" }}"
        ));
    }
    if let Some(host) = w.recorded.keys().find(|h| !w.hosts.contains(h)) {
        return Err(format!(
            "a verdict is recorded for host {host}, which hosts does not list: add it there"
        ));
    }
    let span = w.id.span();
    let (id, hosts, recorded) = (w.id.into_inner(), w.hosts, w.recorded);
    let (source, text, read_from, reported, reasons) = (w.source, w.text, w.read_from, w.reported, w.reason);
    Ok(Claim { id, source, text, read_from, reported, checks, hosts, recorded, reasons, span })
}

pub(super) fn read(text: &str) -> Result<(Header, Vec<Claim>), Refusal> {
    let file: File = toml::from_str(text)?;
    let mut claims: Vec<Claim> = Vec::with_capacity(file.claim.len());
    for written in file.claim {
        let (id, span) = (written.id.get_ref().clone(), written.id.span());
        let refuse = |(message, advice): (String, String)| {
            Refusal::new(format!("claim {id}: {message}"), advice).at(&span)
        };
        if claims.iter().any(|c| c.id == id) {
            return Err(refuse(("this id is taken by a claim above".into(), "give it another".into())));
        }
        claims.push(claim(written).map_err(|text| refuse(with_advice(&text)))?);
    }
    Ok((file.paper, claims))
}

/// Messages say what is wrong, and behind the last `: ` what to write.
fn with_advice(text: &str) -> (String, String) {
    let (message, advice) = text.rsplit_once(": ").unwrap_or((text, ""));
    (message.into(), advice.into())
}
