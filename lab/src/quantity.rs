//! Quantities as people write them: `45Mbit/s`, `10ms`, `64KiB`, `32p`, `1.5BDP`.
//!
//! Reading is exact: a number is taken as a decimal fraction, never through floating point, and must come out as a whole
//! number of bit/s, nanoseconds or bytes. Writing gives the shortest text that reads back as the same value. Spellings that
//! tools disagree about are refused with both readings: `mbps` (bits to most people, bytes to `tc`) and `KB` (1000 or 1024).

use narrows_core::units::{Bytes, Rate};
use std::time::Duration;

/// Why a text is not a quantity, and what to write instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}: {advice}")]
pub struct Misread {
    /// What is wrong.
    pub message: String,
    /// What to write.
    pub advice: String,
}

impl Misread {
    /// `message` says what is wrong, `advice` what to write.
    pub fn new(message: impl Into<String>, advice: impl Into<String>) -> Misread {
        Misread { message: message.into(), advice: advice.into() }
    }
}

/// Something with a notation in scenario files, flags and claims.
pub trait Quantity: Sized {
    /// What it is, with its article: `a rate`.
    const NOUN: &'static str;
    /// A unit for examples: `Mbit/s`.
    const UNIT: &'static str;
    /// Another one: a bare number is as often meant in this.
    const OTHER: &'static str;
    /// A regular expression that every accepted text matches, for editors.
    const PATTERN: &'static str;
    /// Reads it from text.
    fn read(text: &str) -> Result<Self, Misread>;
    /// The shortest text that reads back as this value.
    fn write(&self) -> String;
    /// What to say of a bare number.
    fn unitless(number: &str) -> Misread {
        let example = if number.starts_with('-') { "10" } else { number };
        let advice = format!("write for example \"{example}{}\" or \"{example}{}\"", Self::UNIT, Self::OTHER);
        Misread::new(format!("{number} has no unit, and {} needs one", Self::NOUN), advice)
    }
}

/// A unit: its spelling, and how many base units it is.
type Unit = (&'static str, u64);

/// The first spelling of each size is the one that is written.
const RATES: &[Unit] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
    ("bit", 1),
    ("kbit", 1_000),
    ("Kbit", 1_000),
    ("Kbit/s", 1_000),
    ("mbit", 1_000_000),
    ("mbit/s", 1_000_000),
    ("Mbit", 1_000_000),
    ("Mbps", 1_000_000),
    ("gbit", 1_000_000_000),
    ("gbit/s", 1_000_000_000),
    ("Gbit", 1_000_000_000),
    ("Gbps", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
    ("tbit/s", 1_000_000_000_000),
    ("Tbit", 1_000_000_000_000),
    ("Tbps", 1_000_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
    ("KiB/s", 8 << 10),
    ("MiB/s", 8 << 20),
    ("GiB/s", 8 << 30),
];
const TIMES: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("µs", 1_000),
    ("μs", 1_000),
];
const SIZES: &[Unit] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];
/// How many of the units above are used for writing.
const WRITTEN_RATES: usize = 5;
const WRITTEN_TIMES: usize = 6;

/// What to write instead of spellings that mean different things to different tools.
const AMBIGUOUS: &[(&str, &str)] = &[
    ("bps", "bit/s (tc reads bps as bytes per second)"),
    ("kbps", "kbit/s (tc reads kbps as kilobytes per second)"),
    ("mbps", "Mbit/s (tc reads mbps as megabytes per second)"),
    ("gbps", "Gbit/s (tc reads gbps as gigabytes per second)"),
    ("b/s", "bit/s or B/s"),
    ("kb/s", "kbit/s or kB/s"),
    ("Mb/s", "Mbit/s"),
    ("Gb/s", "Gbit/s"),
    ("KB", "kB (1,000 bytes) or KiB (1,024 bytes)"),
    ("K", "kB (1,000 bytes) or KiB (1,024 bytes)"),
    ("k", "kB (1,000 bytes) or KiB (1,024 bytes)"),
    ("kb", "kB for kilobytes"),
    ("Mb", "MB for megabytes"),
    ("M", "MB (1,000,000 bytes) or MiB (1,048,576 bytes)"),
    ("b", "B for bytes"),
    ("m", "ms for milliseconds or min for minutes"),
    ("sec", "s"),
];

impl Quantity for Rate {
    const NOUN: &'static str = "a rate";
    const UNIT: &'static str = "Mbit/s";
    const OTHER: &'static str = "kbit/s";
    const PATTERN: &'static str = r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]?bit(/s)?|[MGT]bps|([kMG]|[KMG]i)?B/s)\s*$";
    fn read(text: &str) -> Result<Rate, Misread> {
        read::<Rate>(text, RATES, "bit/s").map(Rate)
    }
    fn write(&self) -> String {
        write(self.0, &RATES[..WRITTEN_RATES])
    }
}

impl Quantity for Duration {
    const NOUN: &'static str = "a time";
    const UNIT: &'static str = "ms";
    const OTHER: &'static str = "s";
    const PATTERN: &'static str = r"^\s*\d+(\.\d+)?\s*(ns|us|µs|μs|ms|s|min|h)\s*$";
    fn read(text: &str) -> Result<Duration, Misread> {
        read::<Duration>(text, TIMES, "nanoseconds").map(Duration::from_nanos)
    }
    fn write(&self) -> String {
        if self.is_zero() {
            return "0s".into();
        }
        write(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX), &TIMES[..WRITTEN_TIMES])
    }
}

impl Quantity for Bytes {
    const NOUN: &'static str = "an amount of data";
    const UNIT: &'static str = "kB";
    const OTHER: &'static str = "B";
    const PATTERN: &'static str = r"^\s*\d+(\.\d+)?\s*([kMGT]|[KMGT]i)?B\s*$";
    fn read(text: &str) -> Result<Bytes, Misread> {
        read::<Bytes>(text, SIZES, "bytes").map(Bytes)
    }
    fn write(&self) -> String {
        write(self.0, SIZES)
    }
}

/// The size of a window or buffer as written, before it is known what a bandwidth-delay product is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// `64KiB`
    Bytes(Bytes),
    /// `32p`
    Packets(u64),
    /// `1.5BDP`: this many bandwidth-delay products. Which bandwidth and which delay is said where it is used.
    Bdp(f64),
}

impl Quantity for Amount {
    const NOUN: &'static str = "a buffer";
    const UNIT: &'static str = "kB";
    const OTHER: &'static str = "B";
    const PATTERN: &'static str = r"^\s*\d+(\.\d+)?\s*(([kMGT]|[KMGT]i)?B|p|BDP)\s*$";
    fn read(text: &str) -> Result<Amount, Misread> {
        let trimmed = text.trim();
        if let Some(number) = trimmed.strip_suffix("BDP") {
            let number = number.trim_end();
            decimal(number).ok_or_else(|| not_a_number::<Self>(text))?;
            return Ok(Amount::Bdp(number.parse().map_err(|_| not_a_number::<Self>(text))?));
        }
        if trimmed.ends_with('p') {
            return read::<Amount>(text, &[("p", 1)], "packets").map(Amount::Packets);
        }
        read::<Amount>(text, SIZES, "bytes").map(|n| Amount::Bytes(Bytes(n)))
    }
    fn write(&self) -> String {
        match self {
            Amount::Bytes(b) => b.write(),
            Amount::Packets(n) => format!("{n}p"),
            Amount::Bdp(n) => format!("{n}BDP"),
        }
    }
}

/// Number and unit, as base units.
fn read<Q: Quantity>(text: &str, units: &[Unit], base: &str) -> Result<u64, Misread> {
    let text = text.trim();
    if text.starts_with('-') {
        let advice = format!("write for example \"10{}\"", Q::UNIT);
        return Err(Misread::new(format!("{text} is negative, and {} cannot be", Q::NOUN), advice));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let (mantissa, decimals) = decimal(number).ok_or_else(|| not_a_number::<Q>(text))?;
    if unit.is_empty() {
        return Err(Q::unitless(number));
    }
    let Some((_, size)) = units.iter().find(|(name, _)| *name == unit) else {
        let ambiguous = AMBIGUOUS.iter().find(|(spelling, _)| *spelling == unit);
        return Err(match ambiguous {
            Some((_, instead)) => {
                Misread::new(format!("`{unit}` in {text} is ambiguous"), format!("write {number} {instead}"))
            }
            None => Misread::new(
                format!("`{unit}` in {text} is not a unit of {}", Q::NOUN),
                format!("write for example \"{number}{}\"", Q::UNIT),
            ),
        });
    };
    let too_large =
        || Misread::new(format!("{text} is too large"), format!("the most is {} {base}", u64::MAX));
    let scaled = mantissa.checked_mul(*size as u128).ok_or_else(too_large)?;
    let divisor = 10u128.pow(decimals);
    if scaled % divisor != 0 {
        let nearest = (scaled + divisor / 2) / divisor;
        let advice = format!("the nearest is {nearest} {base}");
        return Err(Misread::new(format!("{text} is not a whole number of {base}"), advice));
    }
    u64::try_from(scaled / divisor).map_err(|_| too_large())
}

fn not_a_number<Q: Quantity>(text: &str) -> Misread {
    Misread::new(format!("`{text}` is not {}", Q::NOUN), format!("write for example \"10{}\"", Q::UNIT))
}

/// Most digits a number may have: 10^25 times the largest unit fits into 128 bits.
const DIGITS: usize = 25;

/// `12.5` is (125, 1): the digits, and how many of them stand behind the point.
fn decimal(text: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() > DIGITS {
        return None;
    }
    Some((format!("{whole}{fraction}").parse().ok()?, fraction.len() as u32))
}

/// The shortest of all exact spellings with a number of at least one; of equally short ones that without a point, then that in
/// the larger unit.
fn write(value: u64, units: &[Unit]) -> String {
    let spellings = units.iter().filter(|(_, size)| value >= *size).filter_map(|&(name, size)| {
        let number = exact(value, size)?;
        Some((number.len() + name.len(), number.contains('.'), core::cmp::Reverse(size), number + name))
    });
    spellings.min().map_or_else(|| format!("{value}{}", units[0].0), |(.., text)| text)
}

/// `value / size` as a decimal fraction, if it ends within nine places.
fn exact(value: u64, size: u64) -> Option<String> {
    let (whole, mut rest) = (value / size, value % size);
    let mut digits = String::new();
    while rest > 0 && digits.len() < 9 {
        let ten_fold = rest as u128 * 10;
        digits.push(char::from(b'0' + (ten_fold / size as u128) as u8));
        rest = (ten_fold % size as u128) as u64;
    }
    let point = if digits.is_empty() { "" } else { "." };
    (rest == 0).then(|| format!("{whole}{point}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_notations_of_the_manual() {
        for text in ["45Mbit/s", "45mbit", "45Mbps", "45 Mbit/s", "0.045Gbit/s", "45000kbit", "5.625MB/s"] {
            assert_eq!(Rate::read(text), Ok(Rate(45_000_000)), "{text}");
        }
        let times =
            [("10ms", 10_000_000), ("1.5s", 1_500_000_000), ("30us", 30_000), ("0.03ms", 30_000), ("0s", 0)];
        for (text, nanos) in times {
            assert_eq!(Duration::read(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(Duration::read("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(Duration::read("1h"), Ok(Duration::from_secs(3600)));
        let sizes = [
            ("64KiB", 65_536),
            ("64kB", 64_000),
            ("1MiB", 1 << 20),
            ("1500B", 1500),
            ("31.25MiB", 32_768_000),
        ];
        for (text, bytes) in sizes {
            assert_eq!(Bytes::read(text), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!(Amount::read("32p"), Ok(Amount::Packets(32)));
        assert_eq!(Amount::read("1.5BDP"), Ok(Amount::Bdp(1.5)));
        assert_eq!(Amount::read("64KiB"), Ok(Amount::Bytes(Bytes(65_536))));
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        fn said<Q: Quantity>(text: &str) -> String {
            Q::read(text).err().unwrap_or_else(|| panic!("{text} was accepted")).to_string()
        }
        assert!(said::<Rate>("45mbps").contains("write 45 Mbit/s (tc reads mbps as megabytes"));
        assert!(said::<Rate>("45").contains("write for example \"45Mbit/s\""));
        assert!(said::<Rate>("1.0001bit/s").contains("not a whole number of bit/s: the nearest is 1 bit/s"));
        assert!(said::<Rate>("99999999Tbit/s").contains("too large"));
        assert!(said::<Duration>("-5ms").contains("negative"));
        assert!(said::<Duration>("5m").contains("ms for milliseconds or min for minutes"));
        assert!(said::<Duration>("5 parsec").contains("write for example \"5ms\""));
        assert!(said::<Bytes>("64KB").contains("kB (1,000 bytes) or KiB (1,024 bytes)"));
        assert!(said::<Bytes>("0.1KiB").contains("the nearest is 102 bytes"));
        assert!(said::<Bytes>("32p").contains("not a unit"));
        assert!(said::<Amount>("1.5p").contains("not a whole number of packets"));
        for odd in ["", ".", "1.", ".5B", "1e3B", "1_000B", "0x10B", "NaNB", "infBDP", "BDP", "１B"] {
            said::<Amount>(odd);
        }
    }

    #[test]
    fn the_shortest_text_is_written() {
        let sizes = [
            (0, "0B"),
            (1500, "1500B"),
            (90_000, "90kB"),
            (65_536, "64KiB"),
            (1 << 20, "1MiB"),
            (1448, "1448B"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(Bytes(bytes).write(), text);
        }
        assert_eq!(Rate(45_000_000).write(), "45Mbit/s");
        assert_eq!(Rate(1_536_000).write(), "1536kbit/s");
        let times = [
            (100, "100ms"),
            (1500, "1.5s"),
            (60_000, "60s"),
            (120_000, "2min"),
            (90_000, "90s"),
            (3_600_000, "1h"),
            (0, "0s"),
        ];
        for (ms, text) in times {
            assert_eq!(Duration::from_millis(ms).write(), text);
        }
        assert_eq!(Amount::Bdp(0.5).write(), "0.5BDP");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(n: u64, small in 0u64..1 << 20, factor in 0usize..SIZES.len(), thousandths in 0u32..) {
            for n in [n, small, small.saturating_mul(SIZES[factor].1), small.saturating_mul(TIMES[factor.min(5)].1)] {
                prop_assert_eq!(Rate::read(&Rate(n).write()), Ok(Rate(n)));
                prop_assert_eq!(Bytes::read(&Bytes(n).write()), Ok(Bytes(n)));
                let d = Duration::from_nanos(n);
                prop_assert_eq!(Duration::read(&d.write()), Ok(d));
                prop_assert_eq!(Amount::read(&Amount::Packets(n).write()), Ok(Amount::Packets(n)));
            }
            let amount = Amount::Bdp(thousandths as f64 / 1000.0);
            prop_assert_eq!(Amount::read(&amount.write()), Ok(amount));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", number in "[0-9.]{0,40}", unit in "[a-zA-Zµ/]{0,6}") {
            for text in [text, format!("{number}{unit}")] {
                let _ = (Rate::read(&text), Duration::read(&text), Amount::read(&text));
            }
        }
    }
}
