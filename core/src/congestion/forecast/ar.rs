//! Autoregression, x(t) = c + a1 x(t-1) + ... + ap x(t-p), its coefficients learnt by recursive least squares that forget (L. Ljung,
//! T. Söderström 1983; S. Haykin, "Adaptive Filter Theory", chapter on RLS).
//!
//! ```text
//!   k = P x / (l + x' P x)     a += k (x(t) - a' x)     P = (P - k x' P) / l
//! ```
//!
//! Least squares want even times: a [`Series`] makes them. A forecast further than one step takes its own forecasts for values.
//!
//! Two guards. A queue that stays the same says nothing, and 1/l per step would make P grow without end: where it would become
//! [`MOST_UNKNOWN`] it stays. And coefficients just learnt may belong to a series that explodes: no forecast leaves the range of the
//! values kept by more than that range again.

use super::Forecaster;
use super::series::Series;
use crate::time::{Time, nanos};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// P at the start, on its diagonal: little is known. With it `a` is 1, 0, ..., which is persistence.
const UNKNOWN: f64 = 100.0;
/// No more than this can be forgotten.
pub const MOST_UNKNOWN: f64 = 10.0 * UNKNOWN;
/// Values kept to know their range, and the longest gap that is bridged, in steps.
const KEPT: usize = 64;
/// A forecast goes at most this many steps.
const FURTHEST: u64 = 256;

/// An autoregression.
#[derive(Clone, Debug)]
pub struct Ar {
    forgetting: f64,
    series: Series,
    model: Model,
}

#[derive(Clone, Debug)]
struct Model {
    /// Of 1 and of the last p values, newest first.
    coefficients: Vec<f64>,
    /// P, row by row.
    spread: Vec<f64>,
}

impl Ar {
    /// Of order `p`, at least 1 and at most 32, over values one `step` apart, each worth `forgetting` (up to 1) of the next.
    pub fn new(step: Duration, p: usize, forgetting: f64) -> Ar {
        let p = p.clamp(1, KEPT / 2);
        let n = p + 1;
        let mut model = Model { coefficients: vec![0.0; n], spread: vec![0.0; n * n] };
        model.coefficients[1] = 1.0;
        (0..n).for_each(|i| model.spread[i * n + i] = UNKNOWN);
        Ar { forgetting, series: Series::new(step, KEPT), model }
    }

    /// c, a1, ..., ap.
    pub fn coefficients(&self) -> &[f64] {
        &self.model.coefficients
    }
}

impl Model {
    fn p(&self) -> usize {
        self.coefficients.len() - 1
    }

    /// From the last p values, newest first.
    fn next(&self, past: &[f64]) -> f64 {
        self.coefficients[0] + self.coefficients[1..].iter().zip(past).map(|(a, x)| a * x).sum::<f64>()
    }

    fn learn(&mut self, past: &[f64], value: f64, forgetting: f64) {
        let n = self.coefficients.len();
        let x = |i: usize| if i == 0 { 1.0 } else { past[i - 1] };
        let px: Vec<f64> =
            (0..n).map(|i| (0..n).map(|j| self.spread[i * n + j] * x(j)).sum::<f64>()).collect();
        let divisor = forgetting + (0..n).map(|i| x(i) * px[i]).sum::<f64>();
        let error = value - self.next(past);
        for (a, px) in self.coefficients.iter_mut().zip(&px) {
            *a += px / divisor * error;
        }
        let mut spread = self.spread.clone();
        for i in 0..n {
            for j in 0..=i {
                let s = (self.spread[i * n + j] - px[i] * px[j] / divisor) / forgetting;
                // Both halves alike: rounding must not make P asymmetric.
                (spread[i * n + j], spread[j * n + i]) = (s, s);
            }
        }
        if (0..n).all(|i| spread[i * n + i] < MOST_UNKNOWN) {
            self.spread = spread;
        }
    }
}

impl Forecaster for Ar {
    fn observe(&mut self, now: Time, value: f64) {
        let Ar { forgetting, series, model } = self;
        series.push(now, value, |series, value| {
            let past: Vec<f64> = series.newest_first().take(model.p()).collect();
            if past.len() == model.p() {
                model.learn(&past, value, *forgetting);
            }
        });
    }

    fn ahead(&self, horizon: Duration) -> f64 {
        let newest = self.series.newest_first().next().unwrap_or(0.0);
        let mut past: Vec<f64> = self.series.newest_first().take(self.model.p()).collect();
        if past.len() < self.model.p() {
            return newest;
        }
        let low = self.series.newest_first().fold(f64::INFINITY, f64::min);
        let high = self.series.newest_first().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = (low - (high - low), high + (high - low));
        // From the newest even time, which may be before the last value.
        let step = nanos(self.series.step());
        let far = nanos(horizon + self.series.lag()).min(FURTHEST * step);
        let mut before = newest;
        for _ in 0..far / step {
            let next = self.model.next(&past).clamp(low, high);
            past.rotate_right(1);
            past[0] = next;
            before = next;
        }
        let part = (far % step) as f64 / step as f64;
        before + part * (self.model.next(&past).clamp(low, high) - before)
    }
}
