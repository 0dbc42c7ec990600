//! Keys that take several values: `[sweep]` in a scenario file.
//! ```toml
//! [sweep]
//! "flow.bulk.controller" = ["reno", "becc"]
//! "flow.bulk.window" = { from = "30kB", to = "350kB", step = "10kB" }
//! "link.r1>r2.rate" = { from = "1Mbit/s", to = "1Gbit/s", count = 7, scale = "log" }
//! [[sweep.together]]                       # these advance in step: three points, not nine
//! "link.r1>r2.delay" = ["1ms", "10ms", "100ms"]
//! "run.duration" = ["10s", "60s", "10min"]
//! ```
//! All combinations are run, in the order of the file, the last key varying fastest. A range includes its end if a step lands
//! on it; with `count` it always does.

use crate::file::text::{At, Entry, Setting};
use crate::file::{Document, Error, Refusal};
use crate::quantity::{Amount, Misread, Quantity};
use crate::scenario::Scenario;
use narrows_core::units::{Bytes, Rate};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Most points of one sweep.
pub const MOST_POINTS: usize = 1_000_000;

/// One combination of a sweep's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Keys and values, as [`Document::with`] takes them.
    pub given: Vec<(String, String)>,
    base: Arc<Document>,
}

impl Point {
    /// The file with this point's values in place and without its `[sweep]`.
    pub fn document(&self) -> Result<Document, Error> {
        let base = (*self.base).clone();
        self.given.iter().try_fold(base, |document, (key, value)| document.with(key, value))
    }

    /// The scenario of this point.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        self.document()?.scenario()
    }
}

/// Keys that advance together; all have equally many values.
pub(crate) struct Axis(Vec<(At<String>, Vec<String>)>);

impl Axis {
    fn len(&self) -> usize {
        self.0.first().map_or(1, |(_, values)| values.len())
    }
}

/// The points of a document's sweep, in order. Every key is tried, so that a mistaken one is found before anything runs.
pub(crate) fn points(document: &Document) -> Result<Vec<Point>, Refusal> {
    let file = document.file()?;
    let axes = file.sweep.as_ref().map_or(Ok(Vec::new()), axes)?;
    let base = Arc::new(document.without_sweep()?);
    for (key, values) in axes.iter().flat_map(|axis| &axis.0) {
        let refuse = |e: Error| Refusal::new(e.to_string(), e.advice().unwrap_or_default()).at(&key.span);
        base.with(key, &values[0]).map_err(refuse)?;
    }
    let total: usize = axes.iter().map(Axis::len).product();
    let point = |number: usize| {
        let mut rest = number;
        let mut steps = vec![0; axes.len()];
        for (step, axis) in steps.iter_mut().zip(&axes).rev() {
            (*step, rest) = (rest % axis.len(), rest / axis.len());
        }
        let given = axes.iter().zip(steps).flat_map(|(axis, step)| {
            axis.0.iter().map(move |(key, values)| (key.value.clone(), values[step].clone()))
        });
        Point { given: given.collect(), base: base.clone() }
    };
    Ok((0..total).map(point).collect())
}

/// What `[sweep]` says, in the order of the text.
pub(crate) fn axes(sweep: &At<Setting>) -> Result<Vec<Axis>, Refusal> {
    let Setting::Table(entries) = &sweep.value else {
        return Err(Refusal::new("a sweep is a table of keys", EXAMPLE).at(&sweep.span));
    };
    let mut axes = Vec::new();
    let mut total = 1;
    let mut add = |axis: Axis| {
        total *= axis.len(); // at most the square of the limit
        axes.push(axis);
        let refusal = || too_many(format!("this sweep has at least {total} points")).at(&sweep.span);
        if total <= MOST_POINTS { Ok(()) } else { Err(refusal()) }
    };
    for (key, values) in entries {
        match (key.as_str(), &values.value) {
            ("together", Setting::List(groups)) => {
                groups.iter().try_for_each(|group| add(together(group)?))?
            }
            ("together", _) => {
                return Err(
                    Refusal::new("`together` is a list of tables", "write [[sweep.together]]").at(&key.span)
                );
            }
            _ => {
                for (key, values) in flatten(key.clone(), values) {
                    add(Axis(vec![(key, spread(values)?)]))?;
                }
            }
        }
    }
    Ok(axes)
}

const EXAMPLE: &str = "write for example \"flow.bulk.window\" = [\"30kB\", \"90kB\"]";

fn too_many(message: String) -> Refusal {
    Refusal::new(message, format!("the most is {MOST_POINTS}: leave out values, or split the sweep"))
}

fn together(group: &At<Setting>) -> Result<Axis, Refusal> {
    let Setting::Table(entries) = &group.value else {
        return Err(Refusal::new("keys that advance together are a table", "write [[sweep.together]]")
            .at(&group.span));
    };
    let mut axis = Axis(Vec::new());
    for (key, values) in entries.iter().flat_map(|(key, values)| flatten(key.clone(), values)) {
        let spread = spread(values)?;
        if let Some((first, _)) = axis.0.first().filter(|_| spread.len() != axis.len()) {
            let message =
                format!("{} has {} values, but {} has {}", key.value, spread.len(), first.value, axis.len());
            return Err(
                Refusal::new(message, "keys that advance together need equally many").at(&values.span)
            );
        }
        axis.0.push((key, spread));
        if axis.0.len() * axis.len() > MOST_POINTS {
            return Err(too_many("these keys have too many values".into()).at(&group.span));
        }
    }
    Ok(axis)
}

/// A key and its values; a key written without quotes (`flow.bulk.window = ...`) arrives as nested tables.
fn flatten(key: At<String>, values: &At<Setting>) -> Vec<(At<String>, &At<Setting>)> {
    match &values.value {
        Setting::Table(entries) if !is_range(entries) => {
            let longer = |next: &At<String>| At {
                value: format!("{}.{}", key.value, next.value),
                span: key.span.start..next.span.end,
            };
            entries.iter().flat_map(|(next, values)| flatten(longer(next), values)).collect()
        }
        _ => vec![(key, values)],
    }
}

/// A range's `from` is a single value; a flow's swept `from` is a list.
fn is_range(entries: &[Entry]) -> bool {
    let single = |s: &Setting| !matches!(s, Setting::List(_) | Setting::Table(_));
    entries
        .iter()
        .any(|(key, value)| ["from", "to", "step", "count", "scale"].contains(&key.as_str()) && single(value))
}

/// The values of one key, as [`Document::with`] takes them.
fn spread(values: &At<Setting>) -> Result<Vec<String>, Refusal> {
    let spread = match &values.value {
        Setting::List(items) => items.iter().map(|i| given(&i.value)).collect(),
        Setting::Table(entries) => range(entries, &values.span)?,
        _ => return Err(Refusal::new("a swept key takes a list or a range", EXAMPLE).at(&values.span)),
    };
    if spread.is_empty() {
        return Err(
            Refusal::new("a sweep over no values runs nothing", "list at least one value").at(&values.span)
        );
    }
    Ok(spread)
}

/// As [`Document::with`] takes it: bare where that is unmistakable.
fn given(setting: &Setting) -> String {
    match setting {
        Setting::Text(text) => match text.parse::<toml_edit::Value>() {
            Ok(_) => toml_edit::Value::from(text.as_str()).to_string(),
            Err(_) => text.clone(),
        },
        other => toml(other),
    }
}

fn toml(setting: &Setting) -> String {
    match setting {
        Setting::Text(text) => toml_edit::Value::from(text.as_str()).to_string(),
        Setting::Whole(n) => n.to_string(),
        Setting::Fraction(x) => toml_edit::Value::from(*x).to_string(),
        Setting::Flag(b) => b.to_string(),
        Setting::List(items) => format!("[{}]", items.iter().map(|i| toml(i)).collect::<Vec<_>>().join(", ")),
        Setting::Table(entries) => {
            let key = |k: &str| toml_edit::Key::new(k).to_string();
            let entries: Vec<String> =
                entries.iter().map(|(k, v)| format!("{} = {}", key(k), toml(v))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

fn range(entries: &[Entry], span: &Range<usize>) -> Result<Vec<String>, Refusal> {
    const KEYS: [&str; 5] = ["from", "to", "step", "count", "scale"];
    if let Some((key, _)) = entries.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        return Err(Refusal::unknown("key of a range", key, KEYS).at(&key.span));
    }
    let entry = |name: &str| entries.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value);
    let example = "write for example { from = \"30kB\", to = \"350kB\", step = \"10kB\" }, or count = 20 in place of step";
    let (Some(from), Some(to)) = (entry("from"), entry("to")) else {
        return Err(Refusal::new("a range needs `from` and `to`", example).at(span));
    };
    let log = match entry("scale") {
        None => false,
        Some(At { value: Setting::Text(text), .. }) if text == "linear" => false,
        Some(At { value: Setting::Text(text), .. }) if text == "log" => true,
        Some(other) => {
            return Err(
                Refusal::new("a range's scale is linear or log", "write scale = \"log\"").at(&other.span)
            );
        }
    };
    let steps = match (entry("step"), entry("count")) {
        (Some(step), None) if !log => Steps::Of(step),
        (None, Some(At { value: Setting::Whole(n), span })) => match usize::try_from(*n) {
            Ok(n) if n > MOST_POINTS => return Err(too_many(format!("this range has {n} values")).at(span)),
            Ok(n) if n >= 2 => Steps::Count(n),
            _ => {
                return Err(
                    Refusal::new("a range has at least its two ends", "write count = 2 or more").at(span)
                );
            }
        },
        _ => {
            let advice = if log { "write count = 20 beside scale = \"log\"" } else { example };
            return Err(Refusal::new("a range needs either `step` or `count`", advice).at(span));
        }
    };
    let ladder = Ladder { from, to, steps, log };
    ladder.values().map_err(|r| if r.span.is_some() { r } else { r.at(span) })
}

enum Steps<'a> {
    Of(&'a At<Setting>),
    Count(usize),
}

struct Ladder<'a> {
    from: &'a At<Setting>,
    to: &'a At<Setting>,
    steps: Steps<'a>,
    log: bool,
}

impl Ladder<'_> {
    /// In whatever notation `from` is written.
    fn values(&self) -> Result<Vec<String>, Refusal> {
        fn of<Q: Quantity>(base: fn(Q) -> u64) -> impl Fn(&At<Setting>) -> Result<u64, Refusal> {
            move |s| match &s.value {
                Setting::Text(text) => Q::read(text).map(base).map_err(|m| Refusal::from(m).at(&s.span)),
                other => Err(Refusal::from(Q::unitless(&toml(other))).at(&s.span)),
            }
        }
        fn amounts<T>(
            noun: &str,
            example: &str,
            pick: fn(Amount) -> Option<T>,
        ) -> impl Fn(&At<Setting>) -> Result<T, Refusal> {
            move |s| {
                let read = if let Setting::Text(text) = &s.value {
                    Amount::read(text).ok().and_then(pick)
                } else {
                    None
                };
                let advice = || format!("write for example \"{example}\"");
                read.ok_or_else(|| Refusal::new(format!("this range counts {noun}"), advice()).at(&s.span))
            }
        }
        match &self.from.value {
            Setting::Text(t) if Rate::read(t).is_ok() => self.whole(of(|r: Rate| r.0), |n| Rate(n).write()),
            Setting::Text(t) if Duration::read(t).is_ok() => {
                let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
                self.whole(of(nanos), |n| Duration::from_nanos(n).write())
            }
            Setting::Text(t) if Bytes::read(t).is_ok() => {
                self.whole(of(|b: Bytes| b.0), |n| Bytes(n).write())
            }
            Setting::Text(t) if t.trim().ends_with('p') => {
                let packets =
                    amounts("packets", "100p", |a| if let Amount::Packets(n) = a { Some(n) } else { None });
                self.whole(packets, |n| Amount::Packets(n).write())
            }
            Setting::Text(t) if t.trim().ends_with("BDP") => {
                let products =
                    amounts("BDP", "1.5BDP", |a| if let Amount::Bdp(x) = a { Some(x) } else { None });
                self.fractions(products, |x| Amount::Bdp(x).write())
            }
            Setting::Text(t) => {
                let misread = Misread::new(
                    format!("a range cannot begin at \"{t}\""),
                    "write a quantity or a number, or list the values",
                );
                Err(Refusal::from(misread).at(&self.from.span))
            }
            Setting::Whole(_) if !self.is_fractional() => {
                let count =
                    |s: &At<Setting>| match s.value {
                        Setting::Whole(n) if n >= 0 => Ok(n as u64),
                        _ => Err(Refusal::new("this range counts in whole numbers", "write for example 4")
                            .at(&s.span)),
                    };
                self.whole(count, |n| n.to_string())
            }
            _ => {
                let number =
                    |s: &At<Setting>| match s.value {
                        Setting::Whole(n) => Ok(n as f64),
                        Setting::Fraction(x) if x.is_finite() => Ok(x),
                        _ => Err(Refusal::new("this range is of plain numbers", "write for example 0.5")
                            .at(&s.span)),
                    };
                self.fractions(number, |x| toml_edit::Value::from(x).to_string())
            }
        }
    }

    fn is_fractional(&self) -> bool {
        let fraction = |s: &At<Setting>| matches!(s.value, Setting::Fraction(_));
        fraction(self.to) || matches!(self.steps, Steps::Of(step) if fraction(step))
    }

    fn ends<T: PartialOrd + Default>(
        &self,
        read: &impl Fn(&At<Setting>) -> Result<T, Refusal>,
    ) -> Result<(T, T), Refusal> {
        let (from, to) = (read(self.from)?, read(self.to)?);
        if from >= to {
            return Err(Refusal::new(
                "a range ends above its beginning",
                "write the smaller value as `from`",
            )
            .at(&self.to.span));
        }
        if self.log && from <= T::default() {
            return Err(Refusal::new(
                "a logarithmic range cannot begin at zero",
                "write a `from` above zero",
            )
            .at(&self.from.span));
        }
        Ok((from, to))
    }

    fn step<T: PartialOrd + Default>(
        &self,
        step: &At<Setting>,
        read: &impl Fn(&At<Setting>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let size = read(step)?;
        if size > T::default() {
            return Ok(size);
        }
        Err(Refusal::new("a range needs a step above zero", "write how far apart its values are")
            .at(&step.span))
    }

    /// Exact sums; `count` rounds to whole base units.
    fn whole(
        &self,
        read: impl Fn(&At<Setting>) -> Result<u64, Refusal>,
        write: fn(u64) -> String,
    ) -> Result<Vec<String>, Refusal> {
        let (from, to) = self.ends(&read)?;
        let values: Vec<u64> = match self.steps {
            Steps::Of(step) => {
                let step = self.step(step, &read)?;
                let count = within_limit((to - from) / step)?;
                (0..=count).map(|i| from + i * step).collect()
            }
            Steps::Count(n) if self.log => {
                let inner =
                    geometric(from as f64, to as f64, n).map(|x| (libm::round(x) as u64).clamp(from, to));
                std::iter::once(from).chain(inner).chain([to]).collect()
            }
            Steps::Count(n) => {
                let (span, last) = ((to - from) as u128, n as u128 - 1);
                (0..n as u128).map(|i| from + ((span * i + last / 2) / last) as u64).collect()
            }
        };
        Ok(values.into_iter().map(write).collect())
    }

    /// Sums rounded to twelve digits, so that 0.1 + 2 x 0.1 is written 0.3.
    fn fractions(
        &self,
        read: impl Fn(&At<Setting>) -> Result<f64, Refusal>,
        write: fn(f64) -> String,
    ) -> Result<Vec<String>, Refusal> {
        let (from, to) = self.ends(&read)?;
        let values: Vec<f64> = match self.steps {
            Steps::Of(step) => {
                let step = self.step(step, &read)?;
                let count = within_limit(libm::floor((to - from) / step + 1e-9) as u64)?;
                (0..=count).map(|i| from + i as f64 * step).collect()
            }
            Steps::Count(n) if self.log => {
                std::iter::once(from).chain(geometric(from, to, n)).chain([to]).collect()
            }
            Steps::Count(n) => (0..n).map(|i| from + (to - from) * i as f64 / (n - 1) as f64).collect(),
        };
        let rounded = |x: f64| format!("{x:.11e}").parse().unwrap_or(x);
        Ok(values.into_iter().map(|x| write(rounded(x))).collect())
    }
}

fn within_limit(steps: u64) -> Result<u64, Refusal> {
    if steps < MOST_POINTS as u64 {
        Ok(steps)
    } else {
        Err(too_many(format!("this range has more than {MOST_POINTS} values")))
    }
}

/// The values between the ends, each the same ratio above the one before.
fn geometric(from: f64, to: f64, n: usize) -> impl Iterator<Item = f64> {
    (1..n - 1).map(move |i| from * libm::pow(to / from, i as f64 / (n - 1) as f64))
}
