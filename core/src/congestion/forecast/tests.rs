//! Forecasters against series of which the best forecast is known.

use super::ar::Ar;
use super::holt::Holt;
use super::kalman::Kalman;
use super::own::Own;
use super::score::Score;
use super::series::Series;
use super::*;
use crate::rng::Rng;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const STEP: Duration = Duration::from_millis(10);
const RTT: Duration = Duration::from_millis(80);

fn at(ms: f64) -> Time {
    Time::from_secs_f64(ms * 1e-3)
}

/// Normal deviates, by the sum of twelve uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

fn all() -> Vec<Box<dyn Forecaster>> {
    vec![
        Box::new(Persistence::default()),
        Box::new(Holt::new(RTT / 2, RTT)),
        Box::new(Ar::new(STEP, 2, 0.999)),
        Box::new(Kalman::of_segments(RTT)),
    ]
}
/// Those that the paper's future work may have meant; `own` needs a sender.
const NAMES: [&str; 4] = ["persistence", "holt", "ar", "kalman"];

fn feed(f: &mut dyn Forecaster, values: impl IntoIterator<Item = (f64, f64)>) {
    values.into_iter().for_each(|(ms, value)| f.observe(at(ms), value));
}

#[test]
fn even_times_are_made_by_straight_lines() {
    let mut series = Series::new(STEP, 4);
    let mut even = vec![];
    // From 5 ms on each 10 ms: 15, 25, 35, 45. Between (5, 0) and (25, 4) the value at 15 ms is 2; (30, 5) and (50, 9) make
    // 6 at 35 and 8 at 45 ms.
    for (ms, value) in [(5.0, 0.0), (25.0, 4.0), (30.0, 5.0), (30.0, 5.0), (50.0, 9.0)] {
        series.push(at(ms), value, |_, v| even.push(v));
    }
    assert_eq!(even, [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(series.newest_first().collect::<Vec<_>>(), [8.0, 6.0, 4.0, 2.0], "four are kept");
    assert_eq!(series.lag(), Duration::from_millis(5));
    series.push(at(500.0), 7.0, |_, v| panic!("{v} was made up"));
    assert_eq!(series.newest_first().collect::<Vec<_>>(), [7.0], "after a gap it starts anew");
}

#[test]
fn a_step_worked_by_hand_with_holts_weights() {
    // Time constants of dt/ln 2 make both weights a half. Level 10, trend 0; then 14 comes after 0.1 s: expected 10, error 4:
    // level 12, trend 0.25 * 4 / 0.1 = 10 per second. Then 14 again: expected 13, error 1: level 13.5, trend 12.5.
    let constant = Duration::from_secs_f64(0.1 / core::f64::consts::LN_2);
    let mut holt = Holt::new(constant, constant);
    feed(&mut holt, [(0.0, 10.0), (100.0, 14.0)]);
    assert!((holt.ahead(Duration::from_millis(100)) - 13.0).abs() < 1e-6);
    feed(&mut holt, [(200.0, 14.0)]);
    assert!((holt.ahead(Duration::ZERO) - 13.5).abs() < 1e-6);
    assert!((holt.ahead(Duration::from_secs(1)) - 26.0).abs() < 1e-6);
}

#[test]
fn a_ramp_is_forecast_exactly_in_the_limit_also_at_uneven_times() {
    let mut rng = Rng::new(1, 0);
    let mut ms = 0.0;
    let ramp: Vec<_> = (0..2000).map(|_| (ms += 1.0 + 9.0 * rng.unit(), (ms, 5.0 + 0.04 * ms)).1).collect();
    let mut fs = all();
    for (f, name) in fs.iter_mut().zip(NAMES) {
        feed(&mut **f, ramp.iter().copied());
        let error = f.ahead(RTT) - (5.0 + 0.04 * (ms + 80.0));
        match name {
            "persistence" => assert!((error + 0.04 * 80.0).abs() < 1e-9, "late by the horizon: {error}"),
            "ar" => assert!(error.abs() < 0.05, "{error}"),
            // 40 ms of it, less what is left of them after 80: e^-2.
            "kalman" => {
                assert!((error + 0.04 * (80.0 - 40.0 * (1.0 - libm::exp(-2.0)))).abs() < 1e-3, "{error}");
            }
            _ => assert!(error.abs() < 1e-3, "{name}: {error}"),
        }
    }
}

#[test]
fn nobody_forecasts_white_noise_better_than_its_deviation() {
    let mut rng = Rng::new(2, 0);
    let mut score = Score::new(all(), &[0.5, 1.0, 2.0]);
    for n in 0..40_000 {
        score.observe(at(10.0 * n as f64), 50.0 + 4.0 * normal(&mut rng), RTT);
    }
    for h in 0..3 {
        assert!(score.compared(h) > 39_000, "{}", score.compared(h));
        let rmse: Vec<f64> = (0..4).map(|i| score.rmse(i, h).unwrap()).collect();
        assert!((rmse[0] / (4.0 * libm::sqrt(2.0)) - 1.0).abs() < 0.02, "sqrt 2 times 4: {rmse:?}");
        assert!(rmse.iter().all(|e| *e > 4.0 * 0.98), "better than any can be: {rmse:?}");
        assert!(rmse[2] < 4.0 * 1.03, "an autoregression learns that the mean is best: {rmse:?}");
    }
}

#[test]
fn an_ar1_is_identified_and_forecast_as_well_as_can_be() {
    let mut rng = Rng::new(3, 0);
    let mut ar = Ar::new(STEP, 1, 0.999);
    let mut score = Score::new(vec![Box::new(Persistence::default()), Box::new(ar.clone())], &[0.5]);
    let mut x = 0.0;
    for n in 0..20_000 {
        x = 0.8 * x + normal(&mut rng);
        ar.observe(at(10.0 * n as f64), 30.0 + x);
        score.observe(at(10.0 * n as f64), 30.0 + x, RTT);
    }
    // The last 1000 values count: standard error sqrt((1 - 0.64)/2000) = 0.013.
    let [c, a] = ar.coefficients() else { panic!() };
    assert!((a - 0.8).abs() < 0.04, "{a}");
    assert!((c / (1.0 - a) - 30.0).abs() < 0.5, "{c}");
    // Variance 1/0.36; four steps ahead its best forecast misses sqrt((1 - 0.8^8)/0.36) = 1.520, persistence sqrt(2 (1 - 0.8^4)/0.36)
    // = 1.811.
    let (persistence, ar) = (score.rmse(0, 0).unwrap(), score.rmse(1, 0).unwrap());
    assert!((persistence - 1.811).abs() < 0.04, "{persistence}");
    assert!((ar - 1.520).abs() < 0.04, "{ar}");
}

#[test]
fn a_sinusoid_is_forecast_far_better_than_by_persistence() {
    let mut score = Score::new(all(), &[0.5, 1.0, 2.0]);
    for n in 0..5000 {
        let ms = 10.0 * n as f64;
        score.observe(at(ms), 50.0 + 20.0 * libm::sin(ms * 1e-3 * core::f64::consts::TAU), RTT);
    }
    for (h, millis) in [40.0, 80.0, 160.0].into_iter().enumerate() {
        // The difference of sin at two instants t apart is 2 sin(pi t) cos: RMS 20 sqrt 2 sin(pi t) for a period of 1 s.
        let theory = 20.0 * libm::sqrt(2.0) * libm::sin(core::f64::consts::PI * millis * 1e-3);
        let rmse: Vec<f64> = (0..4).map(|i| score.rmse(i, h).unwrap()).collect();
        assert!((rmse[0] / theory - 1.0).abs() < 0.01, "{theory}: {rmse:?}");
        assert!(rmse[2] < 0.1 * rmse[0], "two coefficients are a sinusoid: {rmse:?}");
    }
}

#[test]
fn the_filter_learns_the_lines_rate_from_loads_and_foresees_the_turn() {
    // 1000 segments/s. The load changes every 100 ms between 1.3 and 0.7: the queue goes up and down by 30 around 50.
    let mut rng = Rng::new(4, 0);
    let (mut kalman, mut blind) = (Kalman::of_segments(RTT), Kalman::of_segments(RTT));
    let mut queue = 35.0;
    for n in 0..2000u32 {
        let load = if n / 10 % 2 == 0 { 1.3 } else { 0.7 };
        queue += 1000.0 * (load - 1.0) * 0.01;
        let seen = queue + normal(&mut rng) * 0.5;
        kalman.load(load);
        kalman.observe(at(10.0 * n as f64), seen);
        blind.observe(at(10.0 * n as f64), seen);
    }
    assert!((kalman.rate() / 1000.0 - 1.0).abs() < 0.02, "{}", kalman.rate());
    // One value after the turn, the load is known to be 1.3.
    kalman.load(1.3);
    kalman.observe(at(20_000.0), queue + 3.0);
    blind.observe(at(20_000.0), queue + 3.0);
    let real = queue + 3.0 + 300.0 * 0.01;
    let miss = |f: &Kalman| (f.ahead(STEP) - real).abs();
    assert!(miss(&kalman) < 0.5 && miss(&blind) > 2.0, "{} {}", miss(&kalman), miss(&blind));
}

#[test]
fn an_empty_queue_teaches_nothing_of_its_line() {
    let mut kalman = Kalman::of_segments(RTT);
    let mut queue = 20.0;
    for n in 0..1000u32 {
        // Up and down by 3 per step, then half the load until the queue is long empty.
        let load = match n {
            500.. => 0.4,
            _ if n / 10 % 2 == 0 => 1.3,
            _ => 0.7,
        };
        queue = f64::max(queue + 1000.0 * (load - 1.0) * 0.01, 0.0);
        kalman.load(load);
        kalman.observe(at(10.0 * f64::from(n)), queue);
    }
    assert!((kalman.rate() / 1000.0 - 1.0).abs() < 0.02, "{}", kalman.rate());
    kalman.load(1.3);
    let ahead = kalman.ahead(RTT / 2);
    assert!(
        (ahead - 300.0 * 0.04 * (1.0 - libm::exp(-1.0))).abs() < 2.5,
        "the first burst is foreseen as if it had never been empty: {ahead}"
    );
}

#[test]
fn a_queue_that_stays_empty_against_all_expectation_is_believed() {
    // The reports say 10 % less than what comes: a drift of 100/s beside a rate of 1000/s.
    let mut kalman = Kalman::of_segments(RTT);
    let mut queue = 50.0;
    let mut step = |n: u32, load: f64, drift: f64| {
        queue = f64::max(queue + (1000.0 * (load - 1.0) + drift) * 0.01, 0.0);
        kalman.load(load);
        kalman.observe(at(10.0 * f64::from(n)), queue);
        kalman.ahead(RTT)
    };
    (0..500).for_each(|n| _ = step(n, if n / 10 % 2 == 0 { 1.2 } else { 0.6 }, 100.0));
    (500..600).for_each(|n| assert!(step(n, 0.5, 100.0) < 60.0));
    assert!(step(600, 1.0, 0.0) > 2.0, "the drift is remembered: 3.5 after 80 ms, of which it lasts for 40");
    let ahead = (601..700).map(|n| step(n, 1.0, 0.0)).last().unwrap();
    assert!(ahead < 1.0, "{ahead}");
}

#[test]
fn an_autoregression_survives_a_long_silence_and_never_explodes() {
    let mut ar = Ar::new(STEP, 2, 0.98);
    let wave = |n: u32| 50.0 + 20.0 * libm::sin(f64::from(n) * 0.0628);
    let calm = 60_000; // 0.98^-60000 is 10^526
    feed(&mut ar, (0..200).map(|n| (10.0 * f64::from(n), wave(n))));
    feed(&mut ar, (200..calm).map(|n| (10.0 * f64::from(n), 7.0)));
    assert!((ar.ahead(RTT) - 7.0).abs() < 1e-6);
    feed(&mut ar, (calm..calm + 500).map(|n| (10.0 * f64::from(n), wave(n))));
    let error = ar.ahead(RTT) - wave(calm + 499 + 8);
    assert!(error.abs() < 0.1, "{error}");
    // Doubling up to 128: the range is 127, and no forecast is above 128 + 127.
    let mut ar = Ar::new(STEP, 1, 0.98);
    feed(&mut ar, (0..8u8).map(|n| (10.0 * f64::from(n), f64::from(1u8 << n))));
    assert_eq!(ar.ahead(Duration::from_secs(1)), 255.0);
}

#[test]
fn forecasts_stay_finite_whatever_is_observed() {
    let mut rng = Rng::new(5, 0);
    let mut fs = all();
    let mut now = Time::ZERO;
    for n in 0..20_000u32 {
        let gap = [0, 1, 1_000, 1_000_000, 50_000_000, 3_000_000_000_000][rng.below(6) as usize];
        now += Duration::from_nanos(gap);
        let value = match n / 1000 % 3 {
            0 => 0.0,
            1 => rng.unit() * 65_535.0,
            _ => 1e5,
        };
        for (f, name) in fs.iter_mut().zip(NAMES) {
            f.load(rng.unit() * 256.0);
            f.observe(now, value);
            for horizon in [Duration::ZERO, RTT, Duration::from_secs(10)] {
                let ahead = f.ahead(horizon);
                assert!(ahead.is_finite(), "{name} says {ahead} after {n}");
            }
        }
    }
}

/// A sender alone, 40 segments on its path, sees every 5 ms what its queue was `lag` after it had sent: what `f` says of `horizon`
/// ahead, the queue then, and the queue now.
fn alone(f: &mut Own, lag: u64, others: impl Fn(u64) -> f64) -> Vec<(f64, f64, f64)> {
    // Up by a segment per round trip, and halved at 70.
    let flight = |step: u64| 35.0 + (step % 560) as f64 / 16.0;
    let queue = |step: u64| f64::max(flight(step.saturating_sub(lag)) - 40.0 + others(step), 0.0);
    let said = (0..4000).map(|step| {
        let now = at(5.0 * step as f64);
        f.sent(now, flight(step));
        f.load(if queue(step) > 0.0 { 1.0 } else { flight(step.saturating_sub(lag)) / 40.0 });
        f.observe(now, queue(step));
        (f.ahead(RTT), queue(step + 16), queue(step))
    });
    said.skip(1000).collect()
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (n, sum) = values.fold((0.0, 0.0), |(n, sum), v| (n + 1.0, sum + v * v));
    libm::sqrt(sum / n)
}

#[test]
fn what_a_sender_has_sent_it_knows_before_it_comes_to_a_queue_beside_the_receiver() {
    let mut own = Own::new(RTT);
    let said = alone(&mut own, 16, |_| 0.0);
    assert_eq!(own.lag(), Some(RTT));
    let (error, persistence) = (rms(said.iter().map(|s| s.0 - s.1)), rms(said.iter().map(|s| s.2 - s.1)));
    assert!(error < 0.2 * persistence, "also the halving is foreseen: {error} for {persistence}");
}

#[test]
fn of_a_queue_beside_the_sender_everything_sent_is_seen_at_once() {
    let mut own = Own::new(RTT);
    let said = alone(&mut own, 0, |_| 0.0);
    assert_eq!(own.lag(), Some(Duration::ZERO));
    let (error, persistence) = (rms(said.iter().map(|s| s.0 - s.1)), rms(said.iter().map(|s| s.2 - s.1)));
    assert!((error / persistence - 1.0).abs() < 0.05, "it is persistence: {error} for {persistence}");
}

#[test]
fn a_sender_whose_segments_do_not_matter_is_left_out() {
    // A queue that a hundred others make: 60 and a wave of 20, with a period of 1.7 s.
    let mut own = Own::new(RTT);
    let wave = |step: u64| 60.0 + 20.0 * libm::sin(step as f64 * 5e-3 / 1.7 * core::f64::consts::TAU);
    let flight = |step: u64| 30.0 + 5.0 * ((step / 16) % 7) as f64;
    for step in 0..4000 {
        own.sent(at(5.0 * step as f64), flight(step));
        own.observe(at(5.0 * step as f64), wave(step));
    }
    assert_eq!((own.lag(), own.ahead(RTT)), (None, wave(3999)));
}

#[test]
fn before_an_empty_queue_the_load_says_how_much_room_there_is() {
    // 10 segments make a load of a half, so the path holds 20; then 26 are sent.
    let mut own = Own::new(RTT);
    for step in 0..200u32 {
        own.sent(at(5.0 * f64::from(step)), 10.0);
        own.load(0.5);
        own.observe(at(5.0 * f64::from(step)), 0.0);
    }
    assert_eq!(own.ahead(RTT), 0.0);
    own.sent(at(1000.0), 26.0);
    own.observe(at(1000.0), 0.0);
    assert!((own.ahead(RTT) - 6.0).abs() < 0.1, "{}", own.ahead(RTT));
}
