//! How algorithms are found by name and given parameters that carry units.
//!
//! Each family (`congestion`, `qdisc`, `transport::tcp::stack`) has one table of entries. An entry names its [`Parameter`]s
//! with kind, default and meaning, so that scenario files, command line, JSON Schema and `narrows list` all speak of the same
//! ones, and an unknown name can be answered with the nearest known one.

use crate::units::{Bytes, Rate};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

/// A parameter's value, with its unit.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// An amount of data.
    Bytes(Bytes),
    /// A number of packets.
    Packets(u64),
    /// A rate.
    Rate(Rate),
    /// A duration.
    Time(Duration),
    /// A dimensionless gain or probability.
    Ratio(f64),
    /// A count.
    Count(u64),
    /// A switch.
    Flag(bool),
    /// A list of numbers (packets to lose, for instance), shared: a trace may have many, and settings are copied often.
    List(Arc<[u64]>),
    /// One of a few words.
    Word(String),
}

/// What kind of value a parameter takes; [`Parameter::default`] is written in the same notation as in scenario files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `64KiB`
    Bytes,
    /// `64KiB` or `32p`: [`Value::Bytes`] or [`Value::Packets`]
    Limit,
    /// `45Mbit/s`
    Rate,
    /// `30ms`
    Time,
    /// `1.25`
    Ratio,
    /// `4`
    Count,
    /// `true`
    Flag,
    /// `[3, 4, 9]`, or the name of a file of numbers: `cell.txt`
    List,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One named parameter of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, as in the source it comes from.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default in scenario notation; empty if it must be given.
    pub default: &'static str,
    /// What it means, and where it comes from.
    pub meaning: &'static str,
}

/// The parameters of one instance: every name of the entry, given or default. The host that parses them checks names and
/// kinds; a builder may rely on that.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings(pub BTreeMap<String, Value>);

/// A setting that cannot be: which one, and what to write instead.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfit {
    /// The parameter.
    pub parameter: &'static str,
    /// What is wrong, and what would fit.
    pub advice: String,
}

impl Unfit {
    /// `parameter` does not fit; `advice` says what would.
    pub fn new(parameter: &'static str, advice: impl Into<String>) -> Unfit {
        Unfit { parameter, advice: advice.into() }
    }
}

macro_rules! reader {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        /// # Panics
        /// If the entry does not declare it with this kind: a mistake in the entry, not in the input.
        pub fn $name(&self, name: &str) -> $type {
            match self.0.get(name) {
                Some(Value::$variant(v)) => v.clone(),
                other => panic!("parameter {name} is {other:?}, not {}", stringify!($variant)),
            }
        }
    };
}

impl Settings {
    reader!(
        /// The amount of data named `name`.
        bytes, Bytes, Bytes
    );
    reader!(
        /// The rate named `name`.
        rate, Rate, Rate
    );
    reader!(
        /// The duration named `name`.
        time, Time, Duration
    );
    reader!(
        /// The gain or probability named `name`.
        ratio, Ratio, f64
    );
    reader!(
        /// The count named `name`.
        count, Count, u64
    );
    reader!(
        /// The switch named `name`.
        flag, Flag, bool
    );
    reader!(
        /// The list named `name`.
        list, List, Arc<[u64]>
    );
    reader!(
        /// The word named `name`.
        word, Word, String
    );

    /// The value named `name`, of whatever kind.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// A ratio must lie within `low..=high`.
pub fn within(settings: &Settings, name: &'static str, low: f64, high: f64) -> Result<f64, Unfit> {
    let v = settings.ratio(name);
    if v.is_finite() && (low..=high).contains(&v) {
        Ok(v)
    } else {
        Err(Unfit::new(
            name,
            alloc::format!("{name} = {v} is outside {low} to {high}: write a number in between"),
        ))
    }
}

/// A duration must not be zero.
pub fn positive_time(settings: &Settings, name: &'static str) -> Result<Duration, Unfit> {
    let d = settings.time(name);
    if d.is_zero() {
        Err(Unfit::new(name, alloc::format!("{name} must be longer than zero, for example 30ms")))
    } else {
        Ok(d)
    }
}
