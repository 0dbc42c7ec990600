//! Numbers for people: three significant digits and a unit that keeps them short.

/// `34.6 Mbit/s`.
pub fn rate(bps: f64) -> String {
    scaled(bps, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
}

/// `131 kB`, in powers of 1000.
pub fn bytes(n: f64) -> String {
    scaled(n, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// `14.2 ms`.
pub fn time(seconds: f64) -> String {
    scaled(seconds, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])
}

/// `1.25 %`.
pub fn share(ratio: f64) -> String {
    format!("{} %", digits(ratio * 100.0))
}

/// `47 120`, with thin spaces.
pub fn count(n: u64) -> String {
    let text = n.to_string();
    let groups: Vec<&str> =
        text.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join("\u{202f}")
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // A hair below a unit, so that 999.9999 kB is 1 MB.
    let fits = |unit: &&(f64, &str)| value.abs() >= unit.0 * 0.9995;
    match units.iter().find(fits).or(units.last()) {
        Some((size, unit)) => format!("{} {unit}", digits(value / size)),
        None => digits(value),
    }
}

/// Three significant digits, without trailing zeros after the point.
fn digits(value: f64) -> String {
    let decimals = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        assert_eq!(rate(34_567_890.0), "34.6 Mbit/s");
        assert_eq!(
            (bytes(131_072.0), bytes(999_999.0), bytes(0.0)),
            ("131 kB".into(), "1 MB".into(), "0".into())
        );
        assert_eq!(
            (time(0.0142), time(94.0), time(2.5e-6)),
            ("14.2 ms".into(), "94 s".into(), "2.5 µs".into())
        );
        assert_eq!((share(0.0125), share(0.0), share(1.0)), ("1.25 %".into(), "0 %".into(), "100 %".into()));
        assert_eq!(
            (count(47_120), count(7), count(1_000_000)),
            ("47\u{202f}120".into(), "7".into(), "1\u{202f}000\u{202f}000".into())
        );
    }
}
