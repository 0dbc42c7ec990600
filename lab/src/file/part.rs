//! Algorithms in scenario files: `"reno"`, `"fifo:128KiB"`, `{ name = "becc", trigger = 3, inner = "reno" }`. The registries
//! say what exists, which parameters it has, of what kind, and their defaults; the result is complete.

use super::error::Refusal;
use super::numbers;
use super::text::{At, Entry, Setting};
use crate::parts::inside;
use crate::quantity::{Amount, Misread, Quantity};
use crate::scenario::Part;
use narrows_core::ackwin::policy;
use narrows_core::packet::Datagram;
use narrows_core::qdisc::class::Site;
use narrows_core::registry::{Kind, Parameter, Settings, Unfit, Value};
use narrows_core::transport::tcp::stack;
use narrows_core::units::{Bytes, Rate};
use narrows_core::{Rng, congestion, qdisc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The families of algorithms a scenario names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `narrows_core::qdisc`
    Queue,
    /// `narrows_core::congestion`
    Controller,
    /// `narrows_core::transport::tcp::stack`
    Stack,
    /// `narrows_core::ackwin::policy`
    AckWindow,
}

/// What a registry says of one algorithm, whatever its family.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// What it contains.
    pub inner: Inner,
    /// Defaults in place of those of `parameters`.
    pub values: &'static [(&'static str, &'static str)],
}

/// What an algorithm contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner {
    /// Nothing: `inner` is refused.
    None,
    /// Another one if `inner` is given.
    Optional,
    /// This one if `inner` is not given.
    Default(&'static str),
}

impl Algorithm {
    /// The default of a parameter, in scenario notation; empty if it must be given.
    pub fn default_of(&self, parameter: &Parameter) -> &'static str {
        let own = self.values.iter().find(|(name, _)| *name == parameter.name);
        own.map_or(parameter.default, |(_, value)| value)
    }
}

impl Family {
    /// What it is called in messages.
    pub fn noun(self) -> &'static str {
        match self {
            Family::Queue => "queue",
            Family::Controller => "controller",
            Family::Stack => "stack",
            Family::AckWindow => "ack_window",
        }
    }

    /// The key of the name in a table: `{ kind = "loss" }`, `{ name = "becc" }`.
    pub fn key(self) -> &'static str {
        match self {
            Family::Queue => "kind",
            Family::AckWindow => "policy",
            Family::Controller | Family::Stack => "name",
        }
    }

    /// What a scenario that says nothing gets.
    pub fn default(self) -> &'static str {
        match self {
            Family::Queue => "fifo:1000p",
            Family::Controller => "reno",
            Family::Stack => "rfc",
            Family::AckWindow => "none",
        }
    }

    /// All its algorithms.
    pub fn algorithms(self) -> Vec<Algorithm> {
        match self {
            Family::Queue => {
                let inner = |e: &qdisc::Entry| if e.contains { Inner::Optional } else { Inner::None };
                qdisc::REGISTRY
                    .iter()
                    .map(|e| algorithm(e.name, e.summary, e.parameters, inner(e), &[]))
                    .collect()
            }
            Family::Controller => {
                let inner = |e: &congestion::Entry| e.decorates.map_or(Inner::None, Inner::Default);
                let view = |e: &congestion::Entry| algorithm(e.name, e.summary, e.parameters, inner(e), &[]);
                congestion::REGISTRY.iter().map(view).collect()
            }
            Family::Stack => {
                let view =
                    |e: &stack::Entry| algorithm(e.name, e.summary, stack::PARAMETERS, Inner::None, e.values);
                stack::REGISTRY.iter().map(view).collect()
            }
            Family::AckWindow => {
                let view = |e: &policy::Entry| algorithm(e.name, e.summary, e.parameters, Inner::None, &[]);
                policy::REGISTRY.iter().map(view).collect()
            }
        }
    }

    /// The algorithm called `name`.
    pub fn algorithm(self, name: &str) -> Option<Algorithm> {
        self.algorithms().into_iter().find(|a| a.name == name)
    }

    /// Lets the algorithm itself check its settings.
    fn check(self, part: &Part, site: &Site) -> Result<(), Unfit> {
        match self {
            Family::Queue => build_queue(part, site).map(drop),
            Family::Controller => build_controller(part).map(drop),
            Family::Stack => stack::Stack::new(&part.settings).map(drop),
            Family::AckWindow => {
                let entry = policy::by_name(&part.name).expect("the name was found in the registry");
                policy::Chosen::new(entry, &part.settings).map(drop)
            }
        }
    }
}

fn algorithm(
    name: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    inner: Inner,
    values: &'static [(&'static str, &'static str)],
) -> Algorithm {
    Algorithm { name, summary, parameters, inner, values }
}

fn build_queue(part: &Part, site: &Site) -> Result<Box<dyn qdisc::Qdisc<Datagram>>, Unfit> {
    let inner = part.inner.as_deref().map(|p| build_queue(p, &inside(part, site))).transpose()?;
    qdisc::by_name(
        &part.name,
        &part.settings,
        qdisc::Context { inner, rng: Rng::new(0, 0), site: site.clone() },
    )
    .expect("the name was found in the registry")
}

fn build_controller(part: &Part) -> Result<Box<dyn congestion::Controller>, Unfit> {
    let inner = part.inner.as_deref().map(build_controller).transpose()?;
    let entry = congestion::by_name(&part.name).expect("the name was found in the registry");
    (entry.build)(&part.settings, congestion::Context { inner, rng: Rng::new(0, 0) })
}

/// A controller by its name and some of its parameters in scenario notation (`("ms_period", "30ms")`), outside any file.
///
/// # Errors
/// As in a file: an unknown name, a value that does not fit.
pub fn controller(name: &str, given: &[(String, String)]) -> Result<Part, Misread> {
    let at = |value: Setting| At { value, span: 0..0 };
    let key = |text: &str| At { value: text.to_string(), span: 0..0 };
    let algorithm = Family::Controller.algorithm(name);
    let kind = |key: &str| {
        algorithm.and_then(|a| a.parameters.iter().find(|p| p.name == key)).map_or(Kind::Bytes, |p| p.kind)
    };
    let entry = |(k, v): &(String, String)| (key(k), at(from_notation(kind(k), v)));
    let named = (key(Family::Controller.key()), at(Setting::Text(name.into())));
    let entries = std::iter::once(named).chain(given.iter().map(entry)).collect();
    let bdp =
        || Err(Refusal::new("there is no path here to take a BDP of", "write bytes, for example \"64KiB\""));
    let reader = Reader {
        family: Family::Controller,
        defaults: &[],
        site: Site::default(),
        bdp: &bdp,
        folder: Path::new(""),
    };
    reader.part(Some(&at(Setting::Table(entries))), &(0..0)).map_err(|r| Misread::new(r.message, r.advice))
}

/// What a part is read with.
pub(crate) struct Reader<'a> {
    pub family: Family,
    /// Defaults from elsewhere, for those algorithms that have these parameters: a stack's for its controllers.
    pub defaults: &'static [(&'static str, &'static str)],
    /// The line it is for, and the line's classes.
    pub site: Site,
    /// How many bytes one bandwidth-delay product is here.
    pub bdp: &'a dyn Fn() -> Result<Bytes, Refusal>,
    /// Where files lie that a list may be read from.
    pub folder: &'a Path,
}

impl Reader<'_> {
    /// The part as written, or the family's default. `span` is what to point at if nothing is written.
    pub fn part(&self, written: Option<&At<Setting>>, span: &Range<usize>) -> Result<Part, Refusal> {
        match written {
            Some(w) => self.read(w),
            None => self.named(self.family.default(), span),
        }
    }

    fn named(&self, text: &str, span: &Range<usize>) -> Result<Part, Refusal> {
        self.read(&At { value: Setting::Text(text.into()), span: span.clone() })
    }

    fn read(&self, written: &At<Setting>) -> Result<Part, Refusal> {
        let span = &written.span;
        let (name, given) = self.name_and_settings(written)?;
        let Some(algorithm) = self.family.algorithm(&name) else {
            let known = self.family.algorithms();
            return Err(
                Refusal::unknown(self.family.noun(), &name, known.iter().map(|a| a.name)).at(&name.span)
            );
        };
        let mut settings = BTreeMap::new();
        for parameter in algorithm.parameters {
            let default = algorithm.default_of(parameter);
            let elsewhere = self.defaults.iter().find(|(n, _)| *n == parameter.name);
            let default = elsewhere.map_or(default, |(_, value)| value);
            if !default.is_empty() {
                let value = self.value(parameter.kind, &from_notation(parameter.kind, default))?;
                settings.insert(parameter.name.to_string(), value);
            }
        }
        let mut inner = None;
        let mut places: BTreeMap<&str, &Range<usize>> = BTreeMap::new();
        for (key, setting) in &given {
            let parameter = algorithm.parameters.iter().find(|p| p.name == key.value);
            match (parameter, &*key.value) {
                (Some(p), _) => {
                    let about = |r: Refusal| {
                        Refusal::new(format!("{} of {}: {}", p.name, algorithm.name, r.message), r.advice)
                            .at(&setting.span)
                    };
                    settings.insert(key.value.clone(), self.value(p.kind, setting).map_err(about)?);
                    places.insert(p.name, &setting.span);
                }
                (None, "inner") if algorithm.inner != Inner::None => {
                    inner = Some(Box::new(self.read(setting)?))
                }
                (None, "inner") => {
                    let message = format!("{} contains no other {}", algorithm.name, self.family.noun());
                    return Err(Refusal::new(message, "leave out `inner`").at(&key.span));
                }
                (None, unknown) => {
                    let known = algorithm.parameters.iter().map(|p| p.name);
                    let known = known.chain((algorithm.inner != Inner::None).then_some("inner"));
                    return Err(Refusal::unknown(
                        &format!("parameter of {}", algorithm.name),
                        unknown,
                        known,
                    )
                    .at(&key.span));
                }
            }
        }
        if let Some(missing) = algorithm.parameters.iter().find(|p| !settings.contains_key(p.name)) {
            let message = format!("{} needs `{}`: {}", algorithm.name, missing.name, missing.meaning);
            let example = format!("{} = {}", missing.name, example(missing.kind));
            let advice = format!("write {{ {} = \"{}\", {example} }}", self.family.key(), algorithm.name);
            return Err(Refusal::new(message, advice).at(span));
        }
        if let (None, Inner::Default(name)) = (&inner, algorithm.inner) {
            inner = Some(Box::new(self.named(name, span)?));
        }
        let part = Part { name: name.value, settings: Settings(settings), inner };
        self.family.check(&part, &self.site).map_err(|unfit| {
            let place = places.get(unfit.parameter).copied().unwrap_or(span);
            let message = match unfit.parameter {
                "class" => format!("{} cannot be kept for these classes", part.name),
                parameter => format!("`{parameter}` of {} does not fit", part.name),
            };
            Refusal::new(message, unfit.advice).at(place)
        })?;
        Ok(part)
    }

    /// Takes apart `"fifo:128KiB"` and `{ kind = "fifo", limit = "128KiB" }`.
    fn name_and_settings(&self, written: &At<Setting>) -> Result<(At<String>, Vec<Entry>), Refusal> {
        let family = self.family;
        let refuse = |message: String| Refusal::new(message, self.example()).at(&written.span);
        match &written.value {
            Setting::Text(text) => self.positional(text, &written.span),
            Setting::Table(entries) => {
                let (named, settings): (Vec<&Entry>, Vec<&Entry>) =
                    entries.iter().partition(|(key, _)| key.value == family.key());
                let name = match named.first() {
                    Some((_, At { value: Setting::Text(name), span })) => {
                        At { value: name.clone(), span: span.clone() }
                    }
                    Some((_, other)) => {
                        let message = format!("a {}'s name is a text, not {}", family.noun(), other.noun());
                        return Err(refuse(message).at(&other.span));
                    }
                    None => {
                        return Err(refuse(format!(
                            "`{}` is missing: which {}?",
                            family.key(),
                            family.noun()
                        )));
                    }
                };
                Ok((name, settings.into_iter().cloned().collect()))
            }
            other => Err(refuse(format!("a {} is a name or a table, not {}", family.noun(), other.noun()))),
        }
    }

    /// `"fifo"`, or with the value of its first parameter: `"fifo:128KiB"`.
    fn positional(&self, text: &str, span: &Range<usize>) -> Result<(At<String>, Vec<Entry>), Refusal> {
        let at = |text: &str| At { value: text.to_string(), span: span.clone() };
        let (name, first) = text.split_once(':').map_or((text, None), |(name, first)| (name, Some(first)));
        let (Some(algorithm), Some(first)) = (self.family.algorithm(name), first) else {
            return Ok((at(name), Vec::new())); // an unknown name is refused where all names are looked up
        };
        match algorithm.parameters.first().filter(|_| self.family == Family::Queue) {
            Some(parameter) => {
                let first = At { value: from_notation(parameter.kind, first), span: span.clone() };
                Ok((at(name), vec![(at(parameter.name), first)]))
            }
            None => {
                let advice = format!("write {{ {} = \"{name}\", PARAMETER = {first} }}", self.family.key());
                Err(Refusal::new(format!("{name} takes no value behind a colon"), advice).at(span))
            }
        }
    }

    /// A setting as the parameter's kind wants it.
    fn value(&self, kind: Kind, setting: &Setting) -> Result<Value, Refusal> {
        use Setting::{Flag, Fraction, List, Text, Whole};
        let bdp = self.bdp;
        let wrong = || {
            let message = format!("{} does not fit here", setting.noun());
            Refusal::new(message, format!("write for example {}", example(kind)))
        };
        Ok(match (kind, setting) {
            (Kind::Rate, Text(t)) => Value::Rate(Rate::read(t)?),
            (Kind::Time, Text(t)) => Value::Time(Duration::read(t)?),
            (Kind::Bytes, Text(t)) => match amount(t, bdp)? {
                Amount::Bytes(b) => Value::Bytes(b),
                _ => return Err(Bytes::read(t).map_or_else(Refusal::from, |_| wrong())),
            },
            (Kind::Limit, Text(t)) => match amount(t, bdp)? {
                Amount::Packets(n) => Value::Packets(n),
                Amount::Bytes(b) => Value::Bytes(b),
                Amount::Bdp(_) => unreachable!("`amount` has resolved it"),
            },
            (Kind::Bytes | Kind::Limit, Whole(n)) => return Err(Amount::unitless(&n.to_string()).into()),
            (Kind::Rate, Whole(n)) => return Err(Rate::unitless(&n.to_string()).into()),
            (Kind::Time, Whole(n)) => return Err(Duration::unitless(&n.to_string()).into()),
            (Kind::Ratio, Fraction(x)) if x.is_finite() => Value::Ratio(*x),
            (Kind::Ratio, Whole(n)) => Value::Ratio(*n as f64),
            (Kind::Count, Whole(n)) => Value::Count(count(*n)?),
            (Kind::Flag, Flag(b)) => Value::Flag(*b),
            (Kind::List, List(items)) => {
                let number = |item: &At<Setting>| match item.value {
                    Whole(n) => Ok(count(n)?),
                    _ => Err(wrong()),
                };
                Value::List(items.iter().map(number).collect::<Result<_, Refusal>>()?)
            }
            (Kind::List, Text(name)) => Value::List(numbers::read(self.folder, name)?),
            (Kind::Word(words), Text(t)) if words.contains(&&**t) => Value::Word(t.clone()),
            (Kind::Word(words), Text(t)) => return Err(Refusal::unknown("word", t, words.iter().copied())),
            _ => return Err(wrong()),
        })
    }

    fn example(&self) -> String {
        let name = self.family.default().split(':').next().unwrap_or_default();
        format!("write \"{}\" or {{ {} = \"{name}\", ... }}", self.family.default(), self.family.key())
    }
}

/// A value in a registry's or colon's notation, as if it had been written in TOML. What does not fit stays text and is refused
/// as such.
fn from_notation(kind: Kind, text: &str) -> Setting {
    let value = match kind {
        Kind::Ratio => text.parse().ok().map(Setting::Fraction),
        Kind::Count => text.parse().ok().map(Setting::Whole),
        Kind::Flag => text.parse().ok().map(Setting::Flag),
        Kind::List => list_from_notation(text),
        Kind::Bytes | Kind::Limit | Kind::Rate | Kind::Time | Kind::Word(_) => None,
    };
    value.unwrap_or_else(|| Setting::Text(text.into()))
}

fn list_from_notation(text: &str) -> Option<Setting> {
    let items =
        text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::trim).filter(|s| !s.is_empty());
    let whole = |s: &str| Some(At { value: Setting::Whole(s.parse().ok()?), span: 0..0 });
    items.map(whole).collect::<Option<Vec<_>>>().map(Setting::List)
}

fn count(n: i64) -> Result<u64, Misread> {
    u64::try_from(n).map_err(|_| Misread::new(format!("{n} is negative"), "write 0 or more"))
}

/// What is written into ACKs, as said or by default: nothing.
pub(super) fn ack_window(
    written: Option<&At<Setting>>,
    span: &Range<usize>,
    queue: &Part,
) -> Result<Part, Refusal> {
    let bdp =
        || Err(Refusal::new("no policy is written in bandwidth-delay products", "write a policy's name"));
    let reader = Reader {
        family: Family::AckWindow,
        defaults: &[],
        site: Site::default(),
        bdp: &bdp,
        folder: Path::new(""),
    };
    let part = reader.part(written, span)?;
    if part.name != "none" && queue.limit().is_none() {
        let message = format!(
            "ack_window = {}: the queue {} has no limit, so nobody knows its room",
            part.name, queue.name
        );
        let advice = "give the queue a limit, for example \"fifo:100p\", or leave ack_window out";
        return Err(Refusal::new(message, advice).at(written.map_or(span, |w| &w.span)));
    }
    Ok(part)
}

/// Bytes or packets; bandwidth-delay products become bytes, rounded up.
pub(crate) fn amount(text: &str, bdp: &dyn Fn() -> Result<Bytes, Refusal>) -> Result<Amount, Refusal> {
    resolve_bdp(Amount::read(text)?, bdp)
}

/// Bandwidth-delay products become bytes, rounded up.
pub(crate) fn resolve_bdp(
    amount: Amount,
    bdp: &dyn Fn() -> Result<Bytes, Refusal>,
) -> Result<Amount, Refusal> {
    Ok(match amount {
        Amount::Bdp(factor) => match bdp()? {
            Bytes(0) => {
                let advice =
                    "write bytes or packets, for example \"64KiB\" or \"100p\", or give the path a delay";
                return Err(Refusal::new(
                    "a path without delay holds nothing: its bandwidth-delay product is 0",
                    advice,
                ));
            }
            bdp => Amount::Bytes(Bytes(libm::ceil(bdp.0 as f64 * factor) as u64)),
        },
        other => other,
    })
}

/// A value of this kind, in TOML, for messages.
fn example(kind: Kind) -> String {
    match kind {
        Kind::Bytes => "\"64KiB\"".into(),
        Kind::Limit => "\"64KiB\" or \"100p\"".into(),
        Kind::Rate => "\"10Mbit/s\"".into(),
        Kind::Time => "\"30ms\"".into(),
        Kind::Ratio => "0.5".into(),
        Kind::Count => "4".into(),
        Kind::Flag => "true".into(),
        Kind::List => "[3, 4, 9] or \"numbers.txt\"".into(),
        Kind::Word(words) => words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(" or "),
    }
}

/// A value in TOML.
pub(crate) fn write(value: &Value) -> String {
    match value {
        Value::Bytes(b) => quoted(&b.write()),
        Value::Packets(n) => quoted(&Amount::Packets(*n).write()),
        Value::Rate(r) => quoted(&r.write()),
        Value::Time(d) => quoted(&d.write()),
        Value::Ratio(x) => format!("{x:?}"),
        Value::Count(n) => n.to_string(),
        Value::Flag(b) => b.to_string(),
        Value::List(items) => format!("{items:?}"),
        Value::Word(w) => quoted(w),
    }
}

/// A TOML string.
pub(crate) fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}
