//! Numbers about a set of runs: a mean, a straight line through a sweep, the window at which a curve bends.
//!
//! A curve's *plateau* is its largest value. Its *knee* is the smallest x that reaches [`KNEE_SHARE`] of the plateau, its
//! *cliff* the largest x, beyond the knee, before the curve first falls under [`CLIFF_SHARE`] of it.

use super::Undefined;
use serde::{Deserialize, Serialize};

/// Within measuring noise of the plateau.
pub const KNEE_SHARE: f64 = 0.97;
/// Clearly below the plateau.
pub const CLIFF_SHARE: f64 = 0.90;

/// How many numbers become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// Arithmetic mean.
    #[default]
    Mean,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Middle value.
    Median,
    /// 95th percentile, between two values in proportion.
    P95,
    /// Largest minus smallest.
    Spread,
    /// The value farthest from zero, with its sign.
    Farthest,
    /// Least-squares slope over the swept x, in y's base unit per x's.
    Slope,
    /// The share of the variance that the least-squares line explains.
    RSquared,
    /// Smallest x with y at 97 % of the plateau.
    Knee,
    /// Largest x beyond the knee before y first falls below 90 % of the plateau.
    Cliff,
    /// 1 if y never falls as x grows, else 0.
    Monotone,
}

/// Every reduction with its meaning, for `narrows list`.
pub const REDUCTIONS: &[(Reduce, &str, &str)] = &[
    (Reduce::Mean, "mean", "arithmetic mean"),
    (Reduce::Min, "min", "smallest"),
    (Reduce::Max, "max", "largest"),
    (Reduce::Median, "median", "middle value"),
    (Reduce::P95, "p95", "95th percentile"),
    (Reduce::Spread, "spread", "largest minus smallest"),
    (Reduce::Farthest, "farthest", "the value farthest from zero"),
    (Reduce::Slope, "slope", "least-squares slope over the swept x, in base units"),
    (Reduce::RSquared, "r_squared", "share of the variance the least-squares line explains"),
    (Reduce::Knee, "knee", "smallest x with y at 97 % of the largest y"),
    (Reduce::Cliff, "cliff", "largest x beyond the knee before y falls below 90 % of the largest y"),
    (Reduce::Monotone, "monotone", "1 if y never falls as x grows, else 0"),
];

impl Reduce {
    /// Whether it needs an x, that is a sweep.
    pub fn of_a_curve(self) -> bool {
        matches!(self, Reduce::Slope | Reduce::RSquared | Reduce::Knee | Reduce::Cliff | Reduce::Monotone)
    }

    /// Whether seeds scatter around it, so that a confidence interval is meaningful.
    pub fn is_central(self) -> bool {
        !matches!(self, Reduce::Min | Reduce::Max | Reduce::P95 | Reduce::Farthest | Reduce::Monotone)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        REDUCTIONS.iter().find(|r| r.0 == self).map_or("mean", |r| r.1)
    }

    /// Of values without order.
    pub fn of(self, values: &[f64]) -> Result<f64, Undefined> {
        if values.is_empty() {
            return Err(Undefined::new("no run was selected"));
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Ok(match self {
            Reduce::Mean => mean(values),
            Reduce::Min => min,
            Reduce::Max => max,
            Reduce::Median => quantile(&sorted, 0.5),
            Reduce::P95 => quantile(&sorted, 0.95),
            Reduce::Spread => max - min,
            Reduce::Farthest if min.abs() > max.abs() => min,
            Reduce::Farthest => max,
            curve => return Err(Undefined(format!("{} needs a swept x", curve.name()))),
        })
    }

    /// Of a curve, in any order of x, every x once. Reductions that need no x ignore it.
    pub fn of_curve(self, curve: &[(f64, f64)]) -> Result<f64, Undefined> {
        let mut curve = curve.to_vec();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        if self.of_a_curve() && curve.len() < 2 {
            return Err(Undefined(format!(
                "{} needs at least two points, {} found",
                self.name(),
                curve.len()
            )));
        }
        match self {
            Reduce::Slope => Ok(fit(&curve)?.0),
            Reduce::RSquared => fit(&curve)?
                .1
                .ok_or_else(|| Undefined::new("y does not vary, so no share of it is explained")),
            Reduce::Knee => Ok(curve[knee(&curve)?].0),
            Reduce::Cliff => cliff(&curve),
            Reduce::Monotone => Ok(if curve.windows(2).all(|w| w[1].1 >= w[0].1) { 1.0 } else { 0.0 }),
            _ => self.of(&curve.iter().map(|p| p.1).collect::<Vec<_>>()),
        }
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of sorted values, linear between neighbours (rank q (n - 1), as most tools do).
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

/// Least squares: slope, and R squared if y varies at all.
fn fit(curve: &[(f64, f64)]) -> Result<(f64, Option<f64>), Undefined> {
    let n = curve.len() as f64;
    let (mx, my) = (curve.iter().map(|p| p.0).sum::<f64>() / n, curve.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut sxx, mut sxy, mut syy) = (0.0, 0.0, 0.0);
    for (x, y) in curve {
        sxx += (x - mx) * (x - mx);
        sxy += (x - mx) * (y - my);
        syy += (y - my) * (y - my);
    }
    if sxx == 0.0 {
        return Err(Undefined::new("x does not vary, so no line fits"));
    }
    Ok((sxy / sxx, (syy > 0.0).then(|| sxy * sxy / (sxx * syy))))
}

fn plateau(curve: &[(f64, f64)]) -> f64 {
    curve.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max)
}

fn knee(curve: &[(f64, f64)]) -> Result<usize, Undefined> {
    let enough = KNEE_SHARE * plateau(curve);
    curve.iter().position(|p| p.1 >= enough).ok_or_else(|| Undefined::new("the curve has no positive value"))
}

fn cliff(curve: &[(f64, f64)]) -> Result<f64, Undefined> {
    let knee = knee(curve)?;
    let floor = CLIFF_SHARE * plateau(curve);
    match curve[knee..].iter().position(|p| p.1 < floor) {
        Some(first) => Ok(curve[knee + first - 1].0),
        None => Err(Undefined::new("the curve never falls below 90 % of its largest value")),
    }
}

/// Half-width of the two-sided 95 % confidence interval of the mean of independent values (Student's t); `None` for fewer
/// than two.
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let m = mean(values);
    let variance = values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (n - 1) as f64;
    Some(student_t_975(n - 1) * libm::sqrt(variance / n as f64))
}

/// The 97.5 % point of Student's t. Up to 30 degrees of freedom from the usual table, beyond by the first terms of the
/// Cornish-Fisher expansion (error below 1e-4).
fn student_t_975(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    TABLE.get(degrees - 1).copied().unwrap_or_else(|| {
        let (z, d) = (1.959_964, degrees as f64);
        let (z3, z5) = (z * z * z, z * z * z * z * z);
        z + (z3 + z) / (4.0 * d) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * d * d)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 2 in small: a ramp, a plateau, a collapse (kB, Mbit/s).
    const RAMP_PLATEAU_CLIFF: &[(f64, f64)] = &[
        (30.0, 15.0),
        (60.0, 30.0),
        (80.0, 39.0),
        (90.0, 40.2),
        (150.0, 41.0),
        (200.0, 40.8),
        (210.0, 38.0),
        (220.0, 9.0),
        (250.0, 40.0),
    ];

    #[test]
    fn the_knee_is_the_first_x_at_97_percent_of_the_plateau() {
        assert_eq!(
            Reduce::Knee.of_curve(RAMP_PLATEAU_CLIFF),
            Ok(90.0),
            "0.97 x 41 = 39.77: 39.0 is not enough, 40.2 is"
        );
    }

    #[test]
    fn the_cliff_is_the_last_x_before_the_first_fall_under_90_percent() {
        assert_eq!(
            Reduce::Cliff.of_curve(RAMP_PLATEAU_CLIFF),
            Ok(210.0),
            "0.9 x 41 = 36.9: 38.0 still holds; the return does not count"
        );
        let backwards: Vec<_> = RAMP_PLATEAU_CLIFF.iter().rev().copied().collect();
        assert_eq!(Reduce::Cliff.of_curve(&backwards), Ok(210.0), "x may come in any order");
        assert!(Reduce::Cliff.of_curve(&RAMP_PLATEAU_CLIFF[..6]).unwrap_err().0.contains("never falls"));
    }

    #[test]
    fn slope_and_r_squared_of_worked_numbers() {
        // x 1 2 3 4, y 2 4 5 8: mean 2.5 and 4.75; sxx 5, sxy 9.5, syy 18.75.
        let c = [(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 8.0)];
        assert!((Reduce::Slope.of_curve(&c).unwrap() - 1.9).abs() < 1e-12);
        assert!((Reduce::RSquared.of_curve(&c).unwrap() - 9.5 * 9.5 / (5.0 * 18.75)).abs() < 1e-12);
        assert!(Reduce::Slope.of_curve(&c[..1]).is_err());
        assert!(Reduce::Slope.of_curve(&[(1.0, 1.0), (1.0, 2.0)]).is_err(), "a vertical line has no slope");
        assert!(
            Reduce::RSquared.of_curve(&[(1.0, 1.0), (2.0, 1.0)]).is_err(),
            "nothing varies: not 0, not 1"
        );
    }

    #[test]
    fn monotone_allows_equal_neighbours_and_no_fall() {
        assert_eq!(Reduce::Monotone.of_curve(&[(1.0, 2.0), (2.0, 2.0), (3.0, 2.1)]), Ok(1.0));
        assert_eq!(
            Reduce::Monotone.of_curve(&[(1.0, 2.0), (3.0, 2.1), (2.0, 2.2)]),
            Ok(0.0),
            "sorted by x first"
        );
    }

    #[test]
    fn reductions_of_values() {
        let v = [4.0, -7.0, 1.0, 2.0];
        for (reduce, want) in [
            (Reduce::Mean, 0.0),
            (Reduce::Min, -7.0),
            (Reduce::Max, 4.0),
            (Reduce::Median, 1.5),
            (Reduce::P95, 3.7),
            (Reduce::Spread, 11.0),
            (Reduce::Farthest, -7.0),
        ] {
            assert!((reduce.of(&v).unwrap() - want).abs() < 1e-12, "{reduce:?}");
        }
        assert!(Reduce::Mean.of(&[]).is_err(), "no run is no number");
    }

    #[test]
    fn the_confidence_interval_of_worked_numbers() {
        // 10 12 14: mean 12, standard deviation 2, t(2) = 4.303: 4.303 x 2 / sqrt 3 = 4.9687.
        assert!((half_width_95(&[10.0, 12.0, 14.0]).unwrap() - 4.9687).abs() < 1e-3);
        assert_eq!(half_width_95(&[10.0]), None);
        assert!(
            (student_t_975(40) - 2.0211).abs() < 2e-4 && (student_t_975(120) - 1.9799).abs() < 2e-4,
            "tabulated values"
        );
    }
}
