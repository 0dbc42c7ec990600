//! Numbers with their unit, as claims write and reports print them: `12 Mbit/s`, `126 420 B`, `1.5 s`, `85 %`, `2.5`.
//!
//! Inside, everything is in the base unit (bit/s, s, B, 1). A claim is judged only between equal units.

use crate::quantity::Quantity;
use narrows_core::units::{Bytes, Rate};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// bit/s
    BitPerSecond,
    /// s
    Second,
    /// B
    Byte,
    /// A count, a ratio, an index.
    One,
}

impl Unit {
    /// The unit a recorded series names, and the factor to its base unit.
    pub fn of_series(name: &str) -> Option<(Unit, f64)> {
        match name {
            "B/s" => Some((Unit::BitPerSecond, 8.0)),
            "p" => Some((Unit::One, 1.0)),
            _ => [Unit::BitPerSecond, Unit::Second, Unit::Byte, Unit::One]
                .into_iter()
                .find(|u| u.sign() == name)
                .map(|u| (u, 1.0)),
        }
    }

    /// The base unit's sign: `bit/s`, `s`, `B`, or nothing.
    pub fn sign(self) -> &'static str {
        match self {
            Unit::BitPerSecond => "bit/s",
            Unit::Second => "s",
            Unit::Byte => "B",
            Unit::One => "",
        }
    }

    /// The suffix that reads best for a number of about `size`, and its factor. Bytes stay whole up to a megabyte: windows
    /// are claimed to the byte.
    fn suffix_for(self, size: f64) -> (&'static str, f64) {
        match self {
            Unit::BitPerSecond if size >= 1e9 => ("Gbit/s", 1e9),
            Unit::BitPerSecond if size >= 1e6 => ("Mbit/s", 1e6),
            Unit::BitPerSecond if size >= 1e3 => ("kbit/s", 1e3),
            Unit::Second if size > 0.0 && size < 1e-3 => ("us", 1e-6),
            Unit::Second if size > 0.0 && size < 1.0 => ("ms", 1e-3),
            Unit::Byte if size >= 1e6 => ("MB", 1e6),
            _ => (self.sign(), 1.0),
        }
    }
}

/// A number in the base unit of what it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// In bit/s, s, B or 1.
    pub value: f64,
    /// Which of them.
    pub unit: Unit,
}

impl Number {
    /// `value` base units of `unit`.
    pub fn new(value: f64, unit: Unit) -> Number {
        Number { value, unit }
    }

    /// `11.84 ± 0.31 Mbit/s`: number and half-width in one unit.
    pub fn with_half_width(self, half_width: f64) -> String {
        let (suffix, factor) = self.unit.suffix_for(self.value.abs());
        let text =
            format!("{} ± {} {suffix}", four_digits(self.value / factor), two_digits(half_width / factor));
        text.trim_end().to_owned()
    }
}

/// Four significant digits, or all of a whole number's; no trailing zeros.
fn four_digits(v: f64) -> String {
    digits(v, 4)
}

fn two_digits(v: f64) -> String {
    digits(v, 2)
}

fn digits(v: f64, significant: i32) -> String {
    let whole = libm::log10(v.abs().max(f64::MIN_POSITIVE)).floor() as i32 + 1;
    let decimals = (significant - whole).clamp(0, 9) as usize;
    let text = format!("{v:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suffix, factor) = self.unit.suffix_for(self.value.abs());
        write!(f, "{}", format!("{} {suffix}", four_digits(self.value / factor)).trim_end())
    }
}

impl FromStr for Number {
    type Err = String;

    /// What [`crate::quantity`] reads, and beyond it: a sign, spaces between digits, `%`, and no unit at all. The error says
    /// what to write.
    fn from_str(text: &str) -> Result<Number, String> {
        let (sign, rest) = text.trim().strip_prefix('-').map_or((1.0, text.trim()), |rest| (-1.0, rest));
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ' ' || c == '.')).unwrap_or(rest.len());
        let (number, suffix) = (rest[..end].replace(' ', ""), &rest[end..]);
        let plain = format!("{number}{suffix}");
        let refusal = || {
            format!(
                "`{text}` is not a number: write for example \"12 Mbit/s\", \"1.5 s\", \"82 kB\", \"85 %\" or 3"
            )
        };
        let bare = || number.parse::<f64>().map_err(|_| refusal());
        let (value, unit) = match suffix {
            "" => (bare()?, Unit::One),
            "%" => (bare()? / 100.0, Unit::One),
            s if s.ends_with('B') => (Bytes::read(&plain).map_err(|e| e.to_string())?.0 as f64, Unit::Byte),
            s if s.contains(['/', 'b']) => {
                (Rate::read(&plain).map_err(|e| e.to_string())?.0 as f64, Unit::BitPerSecond)
            }
            s if number.is_empty() || s.len() > "min".len() => return Err(refusal()),
            _ => (Duration::read(&plain).map_err(|e| e.to_string())?.as_secs_f64(), Unit::Second),
        };
        Ok(Number { value: sign * value, unit })
    }
}

impl<'de> Deserialize<'de> for Number {
    /// From `"12 Mbit/s"`, or a bare number where nothing but a count or ratio is meant.
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Number, D::Error> {
        match toml::Value::deserialize(d)? {
            toml::Value::String(s) => s.parse().map_err(D::Error::custom),
            toml::Value::Integer(i) => Ok(Number::new(i as f64, Unit::One)),
            toml::Value::Float(v) => Ok(Number::new(v, Unit::One)),
            other => Err(D::Error::custom(format!(
                "`{other}` is not a number: write for example \"12 Mbit/s\" or 3"
            ))),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_in_base_units() {
        for (text, value, unit) in [
            ("12 Mbit/s", 12e6, Unit::BitPerSecond),
            ("126 420 B", 126_420.0, Unit::Byte),
            ("128KiB", 131_072.0, Unit::Byte),
            ("230kB", 230e3, Unit::Byte),
            ("14 ms", 0.014, Unit::Second),
            ("-5 %", -0.05, Unit::One),
            ("2.5", 2.5, Unit::One),
        ] {
            let got: Number = text.parse().unwrap();
            assert!(got.unit == unit && (got.value - value).abs() < 1e-12 * value.abs(), "{text}: {got:?}");
        }
    }

    #[test]
    fn a_wrong_unit_is_answered_with_the_right_one() {
        for (text, says) in [
            ("12 mbps", "Mbit/s"),
            ("12 KB", "kB"),
            ("twelve", "12 Mbit/s"),
            ("3 apples", "1.5 s"),
            ("5 m", "ms for milliseconds"),
            ("", "85 %"),
        ] {
            let refusal = text.parse::<Number>().unwrap_err();
            assert!(refusal.contains(says), "`{refusal}` does not say {says}");
        }
    }

    #[test]
    fn numbers_print_with_four_digits_and_bytes_whole() {
        for (value, unit, text) in [
            (11_843_700.0, Unit::BitPerSecond, "11.84 Mbit/s"),
            (126_420.0, Unit::Byte, "126420 B"),
            (0.014, Unit::Second, "14 ms"),
            (1.25, Unit::Second, "1.25 s"),
            (0.0, Unit::Second, "0 s"),
            (2.5, Unit::One, "2.5"),
            (-0.0123, Unit::One, "-0.0123"),
        ] {
            assert_eq!(Number::new(value, unit).to_string(), text);
        }
        assert_eq!(
            Number::new(11_843_700.0, Unit::BitPerSecond).with_half_width(312_000.0),
            "11.84 ± 0.31 Mbit/s"
        );
    }
}
