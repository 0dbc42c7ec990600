//! A paper's claims as data: `claims.toml` is the only place where a reported number is typed.
//!
//! ```toml
//! [[claim]]
//! id = "becc.fig10.re"
//! source = "Fig. 10, text of 4.1.2"
//! text = "RE-TCP reaches about 12 Mbit/s above 220 kB"
//! read_from = "text"                              # text | table | plot | derived
//! reported = "12 Mbit/s"
//! accept = ["8 Mbit/s", "15 Mbit/s"]              # closed; "-" leaves a side open
//! scenario = "fig10.toml"
//! where = { "flow.bulk.controller" = "reno", "flow.bulk.window" = ["230kB", "350kB"] }
//! metric = "goodput"
//! flow = "bulk"
//! reduce = "mean"
//! hosts = ["sim"]
//! recorded = { sim = "reproduced" }
//! ```
//! A claim measures a *selection*: the runs of a scenario whose sweep point satisfies `where`, one metric of each, reduced to
//! one number. `against` compares it with another selection, which is like the first but for what it names; several are
//! applied in order. `also` adds checks, again like the first but for what they name; a claim is reproduced when all its
//! checks hold. A metric `code.NAME` asks the code instead of a run, with `arguments` in base units.

mod judge;
mod notation;

use crate::file::{Document, Error, Refusal};
use crate::metric::number::{Number, Unit};
use crate::metric::set::Reduce;
use crate::metric::{Ask, Metric};
pub use judge::{Checked, Code, Judgement, Observation};
pub use notation::{Condition, Interval};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A paper's claims.
#[derive(Debug)]
pub struct Claims {
    /// The paper they are from.
    pub paper: Header,
    /// In the file's order; ids are unique.
    pub claims: Vec<Claim>,
    file: Document,
}

/// `[paper]`: who claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its title.
    pub title: String,
    /// Its authors.
    pub authors: Vec<String>,
    /// When it appeared.
    pub year: u16,
    /// Where it appeared.
    #[serde(default)]
    pub published: String,
    /// What to call it on the command line; the claims' ids begin with it.
    pub short: String,
    /// The seeds a reproduction runs, as `"1..10"`, both included.
    #[serde(default = "notation::one_seed", deserialize_with = "notation::seeds")]
    pub seeds: RangeInclusive<u64>,
}

/// Where a reported number was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadFrom {
    /// Words of the paper.
    Text,
    /// A table of the paper.
    Table,
    /// A figure of the paper, by eye.
    Plot,
    /// Computed from what the paper states.
    Derived,
}

/// What became of a claim on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every check lies within its band.
    Reproduced,
    /// Some check lies outside.
    Differs,
    /// Something could not be measured.
    NotRun,
}

/// One claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its id, for example `becc.fig10.re`.
    pub id: String,
    /// Where in the paper.
    pub source: String,
    /// What it says, in our words.
    pub text: String,
    /// Where its number was read.
    pub read_from: ReadFrom,
    /// The number as the paper puts it.
    pub reported: String,
    /// What must hold; at least one.
    pub checks: Vec<Check>,
    /// On which hosts it can be measured.
    pub hosts: Vec<String>,
    /// The verdict on each host when it was last looked at.
    pub recorded: BTreeMap<String, Verdict>,
    /// Why it differs, by host; given for every host whose recorded verdict is `differs`.
    pub reasons: Reasons,
    span: std::ops::Range<usize>,
}

/// Why a claim differs: `reason = "..."` for every host, or `reason = { sim = "...", linux = "..." }`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reasons {
    /// None is needed.
    #[default]
    None,
    /// The same on every host.
    Everywhere(String),
    /// One for each host that needs it.
    ByHost(BTreeMap<String, String>),
}

impl Reasons {
    /// The reason on `host`.
    pub fn on(&self, host: &str) -> Option<&str> {
        match self {
            Reasons::None => None,
            Reasons::Everywhere(reason) => Some(reason),
            Reasons::ByHost(reasons) => reasons.get(host).map(String::as_str),
        }
    }
}

/// One measured number and where it must lie.
#[derive(Clone, Debug)]
pub struct Check {
    /// The accepted band, closed.
    pub accept: Interval,
    /// What is measured.
    pub measurement: Measurement,
}

/// A selection of runs, and the number it becomes.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The scenario file beside `claims.toml`; `None` for questions to the code.
    pub scenario: Option<String>,
    /// Which points of its sweep.
    pub filter: BTreeMap<String, Condition>,
    /// What is measured of each run, or of the code.
    pub quantity: Quantity,
    /// The swept key on the x axis; `None`: the only one that varies.
    pub x: Option<String>,
    /// How the runs become one number.
    pub reduce: Reduce,
    /// What the number is compared with, in order.
    pub against: Vec<Against>,
}

/// What is measured.
#[derive(Clone, Debug)]
pub enum Quantity {
    /// A metric of each run.
    Run(&'static Metric, Ask),
    /// A function of the code, by its name behind `code.`, with arguments in base units.
    Code(String, Vec<f64>),
}

/// A comparison with another selection.
#[derive(Clone, Debug)]
pub struct Against {
    /// How.
    pub comparison: Comparison,
    /// Point by point before reducing (seeds averaged), instead of once after it.
    pub each: bool,
    /// The other selection.
    pub with: Measurement,
}

/// How two numbers a and b are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// a / b
    Ratio,
    /// a - b
    Difference,
    /// (a - b) / b
    Relative,
}

impl Claims {
    /// Reads a `claims.toml`.
    pub fn read(file: Document) -> Result<Claims, Error> {
        let (paper, claims) = notation::read(&file.text).map_err(|r| r.within(&file.name, &file.text))?;
        Ok(Claims { paper, claims, file })
    }

    /// A complaint about `claim`, pointing at it.
    pub(crate) fn refuse(&self, claim: &Claim, message: String, advice: String) -> Error {
        Refusal::new(format!("claim {}: {message}", claim.id), advice)
            .at(&claim.span)
            .within(&self.file.name, &self.file.text)
    }

    /// The scenario files that must be run to measure every claim.
    pub fn scenarios(&self) -> BTreeSet<&str> {
        self.measurements().into_iter().filter_map(|(_, m)| m.scenario.as_deref()).collect()
    }

    /// Every measurement with its claim, those compared with included.
    pub fn measurements(&self) -> Vec<(&Claim, &Measurement)> {
        measurements(&self.claims)
    }
}

fn measurements<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Vec<(&'a Claim, &'a Measurement)> {
    let mut all = Vec::new();
    for claim in claims {
        let mut open: Vec<_> = claim.checks.iter().map(|c| &c.measurement).collect();
        while let Some(m) = open.pop() {
            open.extend(m.against.iter().map(|a| &a.with));
            all.push((claim, m));
        }
    }
    all
}

/// Whether some of the claims need the run of `scenario` at the sweep point `given`.
pub fn need(claims: &[&Claim], scenario: &str, given: &BTreeMap<String, String>) -> bool {
    let needs = |(_, m): (_, &Measurement)| m.scenario.as_deref() == Some(scenario) && m.admits(given);
    measurements(claims.iter().copied()).into_iter().any(needs)
}

impl Claim {
    /// The scenario files it is measured in.
    pub fn scenarios(&self) -> BTreeSet<&str> {
        measurements([self]).into_iter().filter_map(|(_, m)| m.scenario.as_deref()).collect()
    }
}

impl Measurement {
    /// Whether a run at this sweep point is one of the selection.
    fn admits(&self, given: &BTreeMap<String, String>) -> bool {
        self.filter.iter().all(|(key, condition)| given.get(key).is_some_and(|v| condition.admits(v)))
    }

    /// The unit of the number, as far as it is known before a run: not for series, knees and the code.
    fn unit(&self) -> Option<Unit> {
        if self.against.iter().any(|a| a.comparison != Comparison::Difference) {
            return Some(Unit::One);
        }
        match (self.reduce, &self.quantity) {
            (Reduce::Slope | Reduce::RSquared | Reduce::Monotone, _) => Some(Unit::One),
            (Reduce::Knee | Reduce::Cliff, _) | (_, Quantity::Code(..)) => None,
            (_, Quantity::Run(metric, _)) => metric.unit,
        }
    }

    /// In a few words: `goodput, mean`.
    pub fn title(&self) -> String {
        let mut title = match &self.quantity {
            Quantity::Code(name, _) => format!("code.{name}"),
            Quantity::Run(metric, ask) => {
                let name =
                    ask.series.as_deref().map_or(metric.name.into(), |s| format!("{} {s}", metric.name));
                format!("{name}, {}", self.reduce.name())
            }
        };
        for a in &self.against {
            title += match a.comparison {
                Comparison::Ratio => " (ratio)",
                Comparison::Difference => " (difference)",
                Comparison::Relative => " (relative)",
            };
        }
        title
    }
}

#[cfg(test)]
mod tests;
