//! What must hold for every controller of the registry, whatever a connection does to it; and Reno's arithmetic.

use super::*;
use crate::registry::{Kind, Value};
use crate::rng::Rng;
use crate::wire::tcp::RouterState;
use proptest::prelude::*;
use std::vec::Vec;

/// A default in scenario notation, as far as the registry's own entries use it.
fn value(parameter: &Parameter) -> Value {
    let text = parameter.default.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text[..split].parse::<f64>(), text[split..].trim());
    let scale = |units: &[(&str, f64)]| {
        let number = number.clone().unwrap_or_else(|_| panic!("{}: {text}", parameter.name));
        let found =
            units.iter().find(|(u, _)| *u == unit).unwrap_or_else(|| panic!("{}: {text}", parameter.name));
        number * found.1
    };
    const BYTES: [(&str, f64); 6] =
        [("B", 1.0), ("kB", 1e3), ("KiB", 1024.0), ("MiB", 1048576.0), ("MB", 1e6), ("GiB", 1073741824.0)];
    match parameter.kind {
        Kind::Limit if unit == "p" => Value::Packets(scale(&[("p", 1.0)]) as u64),
        Kind::Bytes | Kind::Limit => Value::Bytes(Bytes(scale(&BYTES) as u64)),
        Kind::Rate => {
            Value::Rate(Rate(
                scale(&[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)]) as u64
            ))
        }
        Kind::Time => Value::Time(Duration::from_nanos(scale(&[
            ("ns", 1.0),
            ("us", 1e3),
            ("ms", 1e6),
            ("s", 1e9),
            ("min", 60e9),
        ]) as u64)),
        Kind::Ratio => Value::Ratio(text.parse().unwrap()),
        Kind::Count => Value::Count(text.parse().unwrap()),
        Kind::Flag => Value::Flag(text.parse().unwrap()),
        Kind::List => Value::List([].into()),
        Kind::Word(_) => Value::Word(text.into()),
    }
}

/// The controller with its defaults, but for `changes`, around its usual inner one.
fn build(entry: &Entry, changes: &[(&str, Value)], seed: u64) -> Box<dyn Controller> {
    let pick = |p: &Parameter| {
        changes.iter().find(|(n, _)| *n == p.name).map_or_else(|| value(p), |(_, v)| v.clone())
    };
    let settings = Settings(entry.parameters.iter().map(|p| (p.name.into(), pick(p))).collect());
    let inner =
        entry.decorates.map(|name| build(by_name(name).expect("a decorator names a controller"), &[], seed));
    let built = (entry.build)(&settings, Context { inner, rng: Rng::new(seed, 0) });
    built.unwrap_or_else(|unfit| panic!("{}: {}", entry.name, unfit.advice))
}

#[test]
fn names_are_unique_and_defaults_build_every_entry() {
    for (i, entry) in REGISTRY.iter().enumerate() {
        assert!(REGISTRY[..i].iter().all(|other| other.name != entry.name), "{} twice", entry.name);
        build(entry, &[], 1);
        for p in entry.parameters {
            assert!(!p.meaning.is_empty() && !p.default.is_empty(), "{}.{}", entry.name, p.name);
        }
    }
}

/// What a connection may do to a controller next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Resend,
    Ack { segments: u64, sample: bool, limited: bool, recovering: bool, rate: Option<u64> },
    Duplicate,
    Congestion(Signal),
    Bend(u64),
    Report([u16; 5]),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let signal = prop_oneof![
        4 => Just(Signal::Loss), 2 => Just(Signal::Timeout), 1 => Just(Signal::Ecn), 1 => Just(Signal::Spurious)
    ];
    let ack = (0u64..40, any::<[bool; 3]>(), proptest::option::of(0u64..400_000_000_000));
    let step = prop_oneof![
        6 => Just(Step::Send),
        1 => Just(Step::Resend),
        8 => ack.prop_map(|(segments, [sample, limited, recovering], rate)| Step::Ack { segments, sample, limited, recovering, rate }),
        2 => Just(Step::Duplicate),
        1 => signal.prop_map(Step::Congestion),
        1 => (0u64..1 << 30).prop_map(Step::Bend),
        2 => any::<[u16; 5]>().prop_map(Step::Report),
        3 => prop_oneof![0u64..2_000_000, 0u64..5_000_000_000, Just(1u64 << 42)].prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// At every moment the window is finite and has room for a segment, and nothing panics or overflows.
    #[test]
    fn no_connection_brings_a_window_below_one_segment(
        steps in steps(), mss in prop_oneof![Just(1u32), Just(1460), Just(65_495), 1u32..65_495],
        initial in 1u64..1000, max_window in prop_oneof![Just(65_535u64), Just(65_535 << 14), Just(1 << 30)], seed: u64,
    ) {
        for entry in REGISTRY {
            let mut c = build(entry, &[], seed);
            let (segment, mut now) = (mss as u64, Time::from_millis(seed % 1000));
            let (mut una, mut max, mut min_rtt, mut round, mut duplicates) = (0u64, 0u64, None, 0u64, 0);
            c.on_start(&Start { now, mss, initial_window: Bytes(initial * segment), max_window: Bytes(max_window), rtt: None });
            for step in &steps {
                match *step {
                    Step::Send if max - una < c.window().0 => {
                        max += segment;
                        c.on_send(&Sent { now, bytes: Bytes(segment), in_flight: Bytes(max - una), retransmission: false });
                    }
                    Step::Resend if max > una => {
                        c.on_send(&Sent { now, bytes: Bytes(segment), in_flight: Bytes(max - una), retransmission: true });
                    }
                    Step::Ack { segments, sample, limited, recovering, rate } if max > una => {
                        let acked = (segments.max(1) * segment).min(max - una);
                        (una, duplicates) = (una + acked, 0);
                        let rtt = sample.then(|| Duration::from_nanos(1 + now.as_nanos() % 10_000_000_000));
                        min_rtt = rtt.into_iter().chain(min_rtt).min();
                        let round_start = una >= round;
                        if round_start { round = max }
                        let rate = rate.map(|bits| RateSample { rate: Rate(bits), interval: Duration::from_millis(10), app_limited: !limited });
                        c.on_ack(&Ack {
                            now, acked: Bytes(acked), in_flight: Bytes(max - una), una, max, rtt,
                            echo: rtt, min_rtt, round_start, in_recovery: recovering, window_limited: limited, ce: false, rate,
                        });
                    }
                    Step::Duplicate if max > una => {
                        duplicates += 1;
                        c.on_duplicate_ack(&DuplicateAck { now, count: duplicates, una, max, echo: None });
                    }
                    Step::Congestion(signal) => c.on_congestion(&Congestion { now, signal, flight: Bytes(max - una) }),
                    Step::Report([router, queue, average, load, time]) => {
                        let mut states = RouterStates::default();
                        states.push(RouterState { router: router % 10, queue, average, load, time });
                        c.on_router_states(now, &states);
                    }
                    Step::Bend(window) => c.set_congestion_window(Bytes(window)),
                    Step::Wait(nanos) => now += Duration::from_nanos(nanos),
                    _ => {}
                }
                let (window, cwnd) = (c.window().0, c.congestion_window().0);
                prop_assert!(window >= segment && cwnd >= segment, "{}: window {window}, cwnd {cwnd} after {step:?}", entry.name);
                prop_assert!(window <= (1 << 31) + (1 << 20), "{}: window {window} after {step:?}", entry.name);
                // A few bytes per ten seconds may round to no bit per second.
                prop_assert!(mss < 100 || c.pacing_rate() != Some(Rate(0)), "{}: paced to a standstill", entry.name);
                let mut odd = None;
                c.inspect(&mut |name, v| if !v.is_finite() || v < 0.0 { odd = Some((name, v)) });
                prop_assert_eq!(odd, None, "{}", entry.name);
            }
        }
    }
}

fn reno(extra: u64, validate: bool, count_bytes: bool) -> Box<dyn Controller> {
    let changes = [
        ("extra", Value::Count(extra)),
        ("validate", Value::Flag(validate)),
        ("count_bytes", Value::Flag(count_bytes)),
    ];
    let mut c = build(by_name("reno").unwrap(), &changes, 0);
    c.on_start(&Start {
        now: Time::ZERO,
        mss: 1000,
        initial_window: Bytes(10_000),
        max_window: Bytes(100_000),
        rtt: None,
    });
    c
}

fn ack(c: &mut dyn Controller, acked: u64, limited: bool, recovering: bool) -> u64 {
    c.on_ack(&Ack {
        now: Time::ZERO,
        acked: Bytes(acked),
        in_flight: Bytes::ZERO,
        una: 0,
        max: 0,
        rtt: None,
        echo: None,
        min_rtt: None,
        round_start: false,
        in_recovery: recovering,
        window_limited: limited,
        ce: false,
        rate: None,
    });
    c.congestion_window().0
}

fn cut(c: &mut dyn Controller, signal: Signal, flight: u64) -> (u64, u64) {
    c.on_congestion(&Congestion { now: Time::ZERO, signal, flight: Bytes(flight) });
    (c.ssthresh().0, c.congestion_window().0)
}

#[test]
fn reno_counts_bytes_in_slow_start_but_at_most_two_segments_per_ack() {
    let mut c = reno(0, true, true);
    let windows = [500, 1000, 2000, 5000].map(|acked| ack(&mut *c, acked, true, false));
    assert_eq!(windows, [10_500, 11_500, 13_500, 15_500], "RFC 3465 section 2.2, L = 2");
    let mut c = reno(0, true, false);
    assert_eq!([500, 5000].map(|acked| ack(&mut *c, acked, true, false)), [11_000, 12_000], "per ACK");
}

#[test]
fn reno_grows_in_avoidance_by_a_segment_per_window_acknowledged() {
    let mut c = reno(0, true, true);
    assert_eq!(cut(&mut *c, Signal::Loss, 10_000), (5000, 5000));
    ack(&mut *c, 1000, true, false); // at equality still slow start: 6000
    let windows = [2000, 2000, 1999, 1, 6999, 1].map(|acked| ack(&mut *c, acked, true, false));
    assert_eq!(windows, [6000, 6000, 6000, 7000, 7000, 8000]);
}

#[test]
fn reno_as_bsd_adds_an_eighth() {
    let mut c = reno(8, false, false);
    cut(&mut *c, Signal::Loss, 10_000);
    let windows = [0; 3].map(|_| ack(&mut *c, 1000, false, false));
    assert_eq!(windows, [6000, 6000 + 166 + 125, 6291 + 158 + 125]);
}

#[test]
fn reno_halves_in_whole_segments_and_keeps_two() {
    let mut c = reno(0, true, true);
    assert_eq!(cut(&mut *c, Signal::Loss, 9999), (4000, 4000));
    assert_eq!(cut(&mut *c, Signal::Ecn, 7000), (3000, 3000));
    assert_eq!(cut(&mut *c, Signal::Ecn, 3999), (2000, 1000), "RFC 3168 section 6.1.2: down to one segment");
    assert_eq!(cut(&mut *c, Signal::Ecn, 9000), (4000, 1000), "an echo raises no window");
    assert_eq!(cut(&mut *c, Signal::Timeout, 7000), (3000, 1000));
    assert_eq!(cut(&mut *c, Signal::Loss, 0), (2000, 2000));
    assert_eq!(cut(&mut *c, Signal::Spurious, 90_000), (2000, 2000), "nothing changes");
}

#[test]
fn reno_stays_while_the_application_or_recovery_holds_it_and_at_the_largest_window() {
    let mut c = reno(0, true, true);
    assert_eq!(ack(&mut *c, 2000, false, false), 10_000, "not limited by the window (RFC 7661)");
    assert_eq!(ack(&mut *c, 2000, true, true), 10_000, "in recovery");
    assert_eq!(ack(&mut *reno(0, false, true), 2000, false, false), 12_000);
    (0..1000).for_each(|_| _ = ack(&mut *c, 2000, true, false));
    assert_eq!(c.congestion_window(), Bytes(100_000));
    c.set_congestion_window(Bytes(1));
    assert_eq!(c.congestion_window(), Bytes(1000), "never under a segment");
}
