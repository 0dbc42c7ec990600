//! A sender that acts on forecasts: a decorator that keeps another controller's window from filling a router's queue.
//!
//! ```text
//!   some router's queue, `horizon` ahead > target ──yes──> window x `decrease`, no growth in this round trip and the next
//!                                          └───no───> the inner controller goes on
//! ```
//!
//! A report is half a round trip old, more or less, and what is sent now comes to the queue half a round trip later: hence a horizon
//! of one round trip from the report. The paper says nothing of the reaction. It is DECbit's (K. K. Ramakrishnan, R. Jain 1990),
//! which also decides on what routers say, and loses nothing by it: by 1/8, not by a half; and what is reported in the round trip after
//! a decrease does not count, since it does not show the decrease yet. It decides once per round trip, but at every report in slow
//! start, where a round trip later is twice the window. A loss is answered by the inner controller as ever.
//!
//! The inner controller is told of a mark in that case: it leaves slow start, and keeps what the mark has left.
//!
//! Forecasters count in segments. Their constants are round trips, of the smallest RTT when the first report comes: eight even values
//! per round trip for `ar`, which forgets after sixteen round trips; `holt` forgets its level after half of one, its trend after one;
//! `kalman` see [`Kalman::of_segments`]; `own` see [`super::own`].

use super::ar::Ar;
use super::holt::Holt;
use super::kalman::Kalman;
use super::own::Own;
use super::score::Score;
use super::{Forecaster, Persistence};
use crate::congestion::{Ack, Congestion, Controller, DuplicateAck, Entry, Sent, Signal, Start};
use crate::registry::{Kind, Parameter, Settings, Unfit, within};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::tcp::{RouterState, RouterStates};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// The registry's line for `forecast`.
pub const ENTRY: Entry = Entry {
    name: "forecast",
    summary: "shrinks the window before a queue grows, by forecasts of what routers report (after Nagata et al. about 2003)",
    parameters: &[
        Parameter {
            name: "forecaster",
            kind: Kind::Word(&["persistence", "holt", "ar", "kalman", "own"]),
            default: "persistence",
            meaning: "what forecasts each router's queue; persistence takes it for what was reported last, own adds what was sent since",
        },
        Parameter {
            name: "order",
            kind: Kind::Count,
            default: "2",
            meaning: "past values that ar uses, 1 to 32; two are enough for an oscillation",
        },
        Parameter {
            name: "horizon",
            kind: Kind::Ratio,
            default: "1",
            meaning: "how far it forecasts, in round trips, 0.5 to 2: a report's way here and the data's way back are one",
        },
        Parameter {
            name: "target",
            kind: Kind::Bytes,
            default: "16KiB",
            meaning: "longest queue that is meant to be (the paper's RED begins at 16 segments of 1024 bytes)",
        },
        Parameter {
            name: "decrease",
            kind: Kind::Ratio,
            default: "0.875",
            meaning: "factor on the window when a queue will be longer (DECbit: 0.875)",
        },
        Parameter {
            name: "score",
            kind: Kind::Flag,
            default: "false",
            meaning: "let all forecast beside, and show the RMSE of each at 0.5, 1 and 2 round trips; the window is the same",
        },
    ],
    decorates: Some("reno"),
    build: |settings, context| {
        let inner = context.inner.expect("a decorator is given what it decorates");
        Ok(Box::new(Forecast::new(settings, inner)?))
    },
};

/// Routers that are followed; of more the one unheard for longest gives way.
const ROUTERS: usize = 8;
/// The clock in reports counts to 65 s: which of two reports is older can be told only if the last is not long ago.
const COMPARABLE: Duration = Duration::from_secs(10);

/// What is scored, and how its RMSE at each of [`HORIZONS`] is called: in bytes.
const SCORED: [(Method, [&str; 3]); 5] = [
    (Method::Persistence, ["rmse_persistence_half", "rmse_persistence_one", "rmse_persistence_two"]),
    (Method::Holt, ["rmse_holt_half", "rmse_holt_one", "rmse_holt_two"]),
    (Method::Ar(2), ["rmse_ar_half", "rmse_ar_one", "rmse_ar_two"]),
    (Method::Kalman, ["rmse_kalman_half", "rmse_kalman_one", "rmse_kalman_two"]),
    (Method::Own, ["rmse_own_half", "rmse_own_one", "rmse_own_two"]),
];
/// In round trips.
const HORIZONS: [f64; 3] = [0.5, 1.0, 2.0];

/// Which forecaster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Persistence,
    Holt,
    Ar(usize),
    Kalman,
    Own,
}

impl Method {
    fn build(self, rtt: Duration) -> Box<dyn Forecaster> {
        match self {
            Method::Persistence => Box::new(Persistence::default()),
            Method::Holt => Box::new(Holt::new(rtt / 2, rtt)),
            Method::Ar(order) => Box::new(Ar::new(rtt / 8, order, 1.0 - 1.0 / 128.0)),
            Method::Kalman => Box::new(Kalman::of_segments(rtt)),
            Method::Own => Box::new(Own::new(rtt)),
        }
    }
}

/// A router on the way.
struct Router {
    forecaster: Box<dyn Forecaster>,
    score: Option<Score>,
    last: RouterState,
    heard: Time,
    /// It has reported since the last decision.
    fresh: bool,
}

/// Forecasts around another controller.
pub struct Forecast {
    inner: Box<dyn Controller>,
    method: Method,
    horizon: f64,
    target: u64,
    decrease: f64,
    scores: bool,
    mss: u64,
    routers: Vec<Router>,
    rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    /// Within this round the window does not grow.
    still: bool,
    /// The window was made smaller in this round: what the next one reports does not show it yet.
    waits: bool,
    /// Bytes behind a hole, by duplicate ACKs: each is for a segment that has arrived.
    arrived: u64,
}

impl Forecast {
    /// Reads the parameters.
    pub fn new(settings: &Settings, inner: Box<dyn Controller>) -> Result<Self, Unfit> {
        let order = settings.count("order");
        if !(1..=32).contains(&order) {
            return Err(Unfit::new("order", "order counts past values, 1 to 32: write for example 2"));
        }
        Ok(Forecast {
            inner,
            method: match settings.word("forecaster").as_str() {
                "persistence" => Method::Persistence,
                "holt" => Method::Holt,
                "ar" => Method::Ar(order as usize),
                "kalman" => Method::Kalman,
                _ => Method::Own,
            },
            horizon: within(settings, "horizon", 0.5, 2.0)?,
            target: settings.bytes("target").0,
            decrease: within(settings, "decrease", 0.1, 1.0)?,
            scores: settings.flag("score"),
            mss: 1,
            routers: Vec::new(),
            rtt: None,
            min_rtt: None,
            still: false,
            waits: false,
            arrived: 0,
        })
    }

    /// A router's queue one horizon ahead, in bytes: never less than nothing.
    fn ahead(&self, router: &Router) -> f64 {
        let rtt = self.rtt.or(self.min_rtt).unwrap_or_default();
        let horizon = Duration::from_secs_f64(self.horizon * rtt.as_secs_f64());
        (router.forecaster.ahead(horizon) * self.mss as f64).max(0.0)
    }

    /// The router whose queue will be the longest, and that queue in bytes.
    fn worst(&self, among: impl Fn(&Router) -> bool) -> Option<(&Router, f64)> {
        let forecasts = self.routers.iter().filter(|r| among(r)).map(|r| (r, self.ahead(r)));
        forecasts.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn hear(&mut self, now: Time, state: RouterState, rtt: Duration) {
        let known = self.routers.iter().position(|r| r.last.router == state.router);
        let i = known.unwrap_or_else(|| {
            let forecaster = self.method.build(rtt);
            let score = || {
                let order = |method| {
                    if let (Method::Ar(_), Method::Ar(n)) = (method, self.method) {
                        Method::Ar(n)
                    } else {
                        method
                    }
                };
                Score::new(SCORED.iter().map(|(method, _)| order(*method).build(rtt)).collect(), &HORIZONS)
            };
            let score = self.scores.then(score);
            let new = Router { forecaster, score, last: state, heard: now, fresh: false };
            if self.routers.len() < ROUTERS {
                self.routers.push(new);
                return self.routers.len() - 1;
            }
            let oldest = (0..ROUTERS).min_by_key(|i| self.routers[*i].heard).unwrap_or(0);
            self.routers[oldest] = new;
            oldest
        });
        let round = self.rtt.unwrap_or(rtt);
        let (router, mss) = (&mut self.routers[i], self.mss as f64);
        let older = (state.time.wrapping_sub(router.last.time) as i16) < 0;
        if older && now.since(router.heard) < COMPARABLE {
            return; // an ACK that was overtaken, or held back
        }
        router.forecaster.load(state.load_ratio());
        let queue = state.queue_bytes() as f64 / mss;
        router.forecaster.observe(now, queue);
        if let Some(score) = &mut router.score {
            score.load(state.load_ratio());
            score.observe(now, queue, round);
        }
        (router.last, router.heard, router.fresh) = (state, now, true);
    }

    /// So much is outstanding from now on; what duplicate ACKs say has arrived is in flight no more.
    fn sent(&mut self, now: Time, outstanding: u64) {
        let flight = outstanding.saturating_sub(self.arrived) as f64 / self.mss as f64;
        for router in &mut self.routers {
            router.forecaster.sent(now, flight);
            if let Some(score) = &mut router.score {
                score.sent(now, flight);
            }
        }
    }

    /// On what has been reported since the last decision.
    fn decide(&mut self, now: Time) {
        self.still = self.worst(|r| r.fresh).is_some_and(|(_, queue)| queue > self.target as f64);
        self.routers.iter_mut().for_each(|r| r.fresh = false);
        let window = self.inner.congestion_window().0;
        if self.still && window > 2 * self.mss {
            let reduced = Bytes(((window as f64 * self.decrease) as u64).max(2 * self.mss));
            // Twice of it, since a mark halves.
            let flight = Bytes(2 * reduced.0);
            self.inner.on_congestion(&Congestion { now, signal: Signal::Ecn, flight });
            self.inner.set_congestion_window(reduced);
            self.waits = true;
        }
    }
}

impl Controller for Forecast {
    fn on_start(&mut self, start: &Start) {
        self.mss = u64::from(start.mss.max(1));
        (self.rtt, self.min_rtt) = (start.rtt, start.rtt);
        self.inner.on_start(start);
    }
    fn catch_up(&mut self, now: Time) {
        self.inner.catch_up(now);
    }
    fn on_send(&mut self, sent: &Sent) {
        self.sent(sent.now, sent.in_flight.0);
        self.inner.on_send(sent);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.rtt = ack.rtt.or(self.rtt);
        self.min_rtt = ack.min_rtt.or(self.min_rtt);
        // A partial ACK is for the segment sent again, and for some of those that had arrived.
        let arrived = (self.arrived + self.mss).saturating_sub(ack.acked.0);
        self.arrived = if ack.in_recovery { arrived.min(self.arrived) } else { 0 };
        self.sent(ack.now, ack.in_flight.0);
        let starting = self.inner.congestion_window() < self.inner.ssthresh();
        if ack.in_recovery {
            (self.still, self.waits) = (self.still && !ack.round_start, false);
        } else if ack.round_start && self.waits {
            self.waits = false;
            self.routers.iter_mut().for_each(|r| r.fresh = false);
        } else if ack.round_start || starting && !self.still {
            self.decide(ack.now);
        }
        // A mark was echoed, as it were: the window does not grow.
        self.inner.on_ack(&Ack { ce: ack.ce || self.still, ..*ack });
    }

    fn on_duplicate_ack(&mut self, duplicate: &DuplicateAck) {
        self.arrived += self.mss;
        self.sent(duplicate.now, duplicate.max - duplicate.una);
        self.inner.on_duplicate_ack(duplicate);
    }

    fn on_router_states(&mut self, now: Time, states: &RouterStates) {
        // Before a round trip has been timed there is nothing to count in.
        if let Some(rtt) = self.min_rtt.or(self.rtt) {
            states.as_slice().iter().for_each(|state| self.hear(now, *state, rtt));
        }
        self.inner.on_router_states(now, states);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.inner.on_congestion(event);
    }
    fn set_congestion_window(&mut self, window: Bytes) {
        self.inner.set_congestion_window(window);
    }
    fn congestion_window(&self) -> Bytes {
        self.inner.congestion_window()
    }
    fn ssthresh(&self) -> Bytes {
        self.inner.ssthresh()
    }
    fn window(&self) -> Bytes {
        self.inner.window()
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.inner.pacing_rate()
    }
    fn timestamp_clock(&self) -> Option<Duration> {
        self.inner.timestamp_clock()
    }
    fn wants_rate_samples(&self) -> bool {
        self.inner.wants_rate_samples()
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.inner.inspect(probe);
        if let Some((router, queue)) = self.worst(|_| true) {
            probe("forecast_queue", queue);
            probe("reported_queue", router.last.queue_bytes() as f64);
            for (i, (_, names)) in SCORED.iter().enumerate() {
                for (h, name) in names.iter().enumerate() {
                    if let Some(rmse) = router.score.as_ref().and_then(|score| score.rmse(i, h)) {
                        probe(name, rmse * self.mss as f64);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::reno::Reno;
    use crate::registry::Value;
    use alloc::string::ToString;

    const RTT: Duration = Duration::from_millis(100);

    fn reno() -> Box<dyn Controller> {
        let flags = ["validate", "count_bytes"].map(|name| (name.to_string(), Value::Flag(true)));
        let settings = Settings(flags.into_iter().chain([("extra".to_string(), Value::Count(0))]).collect());
        Box::new(Reno::new(&settings).unwrap())
    }

    fn settings(forecaster: &str, changes: &[(&str, Value)]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in [
            ("forecaster", Value::Word(forecaster.into())),
            ("order", Value::Count(2)),
            ("horizon", Value::Ratio(1.0)),
            ("target", Value::Bytes(Bytes(16_000))),
            ("decrease", Value::Ratio(0.875)),
            ("score", Value::Flag(false)),
        ]
        .into_iter()
        .chain(changes.iter().cloned())
        {
            settings.0.insert(name.to_string(), value);
        }
        settings
    }

    /// A connection with segments of 1000 bytes, a round trip of 100 ms and a window of 16 segments.
    struct Sender {
        forecast: Forecast,
        now: Time,
    }

    impl Sender {
        fn new(forecaster: &str) -> Sender {
            Sender::of(&settings(forecaster, &[]))
        }

        fn of(settings: &Settings) -> Sender {
            let mut forecast = Forecast::new(settings, reno()).unwrap();
            let now = Time::from_millis(100);
            let (initial_window, max_window) = (Bytes(16_000), Bytes(1 << 20));
            forecast.on_start(&Start { now, mss: 1000, initial_window, max_window, rtt: Some(RTT) });
            Sender { forecast, now }
        }

        /// Router `router` has `queue` units of 64 bytes waiting, `ms` later.
        fn report(&mut self, ms: u64, router: u16, queue: u16) {
            self.now += Duration::from_millis(ms);
            let time = (self.now.as_nanos() / 1_000_000) as u16;
            let mut states = RouterStates::default();
            states.push(RouterState { router, queue, load: 256, time, ..RouterState::default() });
            self.forecast.on_router_states(self.now, &states);
        }

        /// A segment is acknowledged: the window after it.
        fn ack(&mut self, round_start: bool, in_recovery: bool) -> u64 {
            self.forecast.on_ack(&Ack {
                now: self.now,
                acked: Bytes(1000),
                in_flight: Bytes(0),
                una: 0,
                max: 0,
                rtt: Some(RTT),
                echo: None,
                min_rtt: Some(RTT),
                round_start,
                in_recovery,
                window_limited: true,
                ce: false,
                rate: None,
            });
            self.forecast.window().0
        }

        fn shown(&self, name: &str) -> Option<f64> {
            let mut found = None;
            self.forecast.inspect(&mut |n, value| {
                if n == name {
                    found = Some(value);
                }
            });
            found
        }
    }

    #[test]
    fn a_queue_over_the_target_costs_an_eighth_per_two_round_trips_and_all_growth() {
        let mut s = Sender::new("persistence");
        s.report(1, 1, 250); // 16,000 bytes: at the target, not over it
        assert_eq!((s.ack(true, false), s.shown("reported_queue")), (17_000, Some(16_000.0)));
        s.report(1, 1, 251);
        assert_eq!(s.ack(false, false), 14_875, "at once in slow start: 7/8 of 17,000");
        assert_eq!(s.forecast.ssthresh(), Bytes(14_000), "which the mark has set, in whole segments");
        s.report(1, 1, 251);
        assert_eq!(s.ack(true, false), 14_875, "nor what was reported before the decrease could show");
        s.report(1, 1, 251);
        assert_eq!(s.ack(false, false), 14_875, "once per round trip from now on; it does not grow");
        assert_eq!(s.ack(true, false), 13_015, "7/8 of 14,875");
        assert_eq!((s.ack(true, false), s.ack(true, false)), (13_015, 13_015), "nobody has reported since");
        (0..12).for_each(|_| _ = s.ack(false, false));
        assert_eq!(s.ack(false, false), 14_015, "a window of segments brings one");
    }

    #[test]
    fn never_below_two_segments_and_recovery_is_left_alone() {
        let mut s = Sender::new("persistence");
        for round in 0..40 {
            s.report(100, 1, 60_000);
            assert!(s.ack(true, false) >= 2000, "round {round}");
        }
        assert_eq!(s.forecast.window(), Bytes(2000));
        s.forecast.set_congestion_window(Bytes(1000));
        s.report(100, 1, 60_000);
        assert_eq!(s.ack(true, false), 1000, "nor is a window after a timeout raised");
        let mut s = Sender::new("persistence");
        s.report(100, 1, 60_000);
        assert_eq!(s.ack(true, true), 16_000);
    }

    #[test]
    fn a_growing_queue_is_answered_before_it_is_long() {
        // 256 bytes per 10 ms up to 15,360: in 100 ms it will be 17,920.
        for (forecaster, window) in
            [("persistence", 17_000), ("holt", 14_000), ("ar", 14_000), ("kalman", 14_000)]
        {
            let mut s = Sender::new(forecaster);
            (0..=60).for_each(|n| s.report(10, 1, 4 * n));
            let forecast = s.shown("forecast_queue").unwrap();
            assert_eq!(s.ack(true, false), window, "{forecaster}: {forecast}");
            assert_eq!(s.shown("reported_queue"), Some(15_360.0));
            let expected = match forecaster {
                "persistence" => 15_360.0,
                "kalman" => 15_360.0 + 25_600.0 * 0.05 * (1.0 - libm::exp(-2.0)), // it lasts for half a round trip
                _ => 17_920.0,
            };
            assert!((forecast / expected - 1.0).abs() < 0.05, "{forecaster}: {forecast}");
        }
    }

    #[test]
    fn the_worst_router_counts_and_reports_that_were_overtaken_do_not() {
        let mut s = Sender::new("persistence");
        s.report(10, 1, 300);
        s.report(10, 2, 10);
        assert_eq!(s.shown("reported_queue"), Some(19_200.0));
        s.report(10, 1, 100);
        assert_eq!(s.shown("reported_queue"), Some(6400.0));
        let mut states = RouterStates::default();
        let time = (s.now.as_nanos() / 1_000_000 - 5) as u16;
        states.push(RouterState { router: 1, queue: 300, time, ..RouterState::default() });
        s.forecast.on_router_states(s.now, &states);
        assert_eq!(s.shown("reported_queue"), Some(6400.0), "5 ms older than the last");
        (3..40).for_each(|router| s.report(10, router, 1));
        assert_eq!((s.forecast.routers.len(), s.shown("reported_queue")), (ROUTERS, Some(64.0)));
    }

    #[test]
    fn the_score_of_a_ramp_is_persistences_lag_and_it_moves_no_window() {
        let of = |score| Sender::of(&settings("kalman", &[("score", Value::Flag(score))]));
        let (mut s, mut plain) = (of(true), of(false));
        // 64 bytes per 10 ms: late by half, one and two round trips of 100 ms persistence misses 320, 640 and 1280 bytes.
        for n in 0..2000 {
            s.report(10, 1, n);
            plain.report(10, 1, n);
            assert_eq!(s.ack(n % 10 == 0, false), plain.ack(n % 10 == 0, false));
        }
        for (name, missed) in ["rmse_persistence_half", "rmse_persistence_one", "rmse_persistence_two"]
            .iter()
            .zip([320.0, 640.0, 1280.0])
        {
            assert!((s.shown(name).unwrap() - missed).abs() < 1.0, "{name}: {:?}", s.shown(name));
            assert_eq!(plain.shown(name), None);
        }
        // The filter takes it for a slope that lasts 50 ms: of 640 bytes it expects 320 (1 - e^-2).
        for (name, most) in
            [("rmse_holt_one", 64.0), ("rmse_ar_one", 64.0), ("rmse_kalman_one", 640.0 - 276.0)]
        {
            assert!(s.shown(name).unwrap() < most, "{name}: {:?}", s.shown(name));
        }
    }

    #[test]
    fn what_has_arrived_behind_a_hole_is_in_flight_no_more() {
        let mut s = Sender::new("own");
        for count in 1..=5 {
            let now = s.now;
            s.forecast.on_duplicate_ack(&DuplicateAck { now, count, una: 0, max: 16_000, echo: None });
        }
        assert_eq!(s.forecast.arrived, 5000);
        // 1000 bytes are acknowledged: the segment sent again, up to the next hole.
        s.ack(false, true);
        assert_eq!(s.forecast.arrived, 5000);
        s.ack(true, false);
        assert_eq!(s.forecast.arrived, 0, "nothing is missing");
    }

    #[test]
    fn what_cannot_be_set_says_what_can() {
        for (name, value) in [
            ("order", Value::Count(0)),
            ("order", Value::Count(33)),
            ("horizon", Value::Ratio(0.4)),
            ("horizon", Value::Ratio(2.1)),
            ("decrease", Value::Ratio(0.0)),
        ] {
            let refused = Forecast::new(&settings("ar", &[(name, value)]), reno()).err().unwrap();
            assert_eq!(refused.parameter, name);
        }
    }
}
