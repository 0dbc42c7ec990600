//! The paper's arithmetic, its modes and its costs.

use super::control::{self, ControlBlock, Mode, Operations, Place, UNLIMITED, bandwidth_window};
use super::*;

fn block() -> ControlBlock {
    ControlBlock::new(30)
}

#[test]
fn bandwidth_window_is_126420_bytes_for_the_values_of_section_4_1_1() {
    assert_eq!(bandwidth_window(270_900u32, 14, 30), 126_420);
    let mut b = block();
    (b.t_maxacked, b.t_minrtt) = (270_900, 14);
    b.loss(2 * 4300);
    assert_eq!((b.snd_swnd, b.t_maxacked, b.mode), (126_420, 0, Mode::NotUpdate));
}

#[test]
fn the_control_block_grows_by_40_bytes() {
    assert_eq!(core::mem::size_of::<ControlBlock>(), 40);
}

#[test]
fn nothing_is_bounded_before_the_first_loss() {
    let b = block();
    assert_eq!((b.snd_swnd, b.mode), (UNLIMITED, Mode::UpdateStart));
}

#[test]
fn equation_1_as_printed_and_as_its_sentence_says() {
    let mut old = block();
    (old.t_acked, old.t_msrd_th) = (153_750, 1_000_000); // 5,125,000 byte/s
    let mut new = old;
    old.swnd_timer(&LITERAL);
    assert_eq!(old.t_msrd_th, 1_000_000 + (5_125_000 - 1_000_000) / 4);
    new.swnd_timer(&Reading { sample_weight: 3 << 14, ..LITERAL });
    assert_eq!(new.t_msrd_th, 1_000_000 + (5_125_000 - 1_000_000) * 3 / 4);
    assert_eq!((old.t_maxacked, old.t_acked), (153_750, 0));
}

#[test]
fn the_rate_is_exact_far_above_32_bit_products() {
    let mut b = block();
    b.t_acked = 40_000_000; // 10.7 Gbit/s; times 1000 it exceeds 32 bits
    b.swnd_timer(&Reading { sample_weight: 1 << 16, ..LITERAL });
    assert_eq!(b.t_msrd_th, 1_333_333_333);
}

/// Every row of the table of section 3.4's modes.
#[test]
fn swnd_update_walks_through_its_modes() {
    let mut b = ControlBlock { snd_swnd: 80_000, t_msrd_th: 1_000_000, ..block() };
    b.swnd_update(&LITERAL);
    assert_eq!(
        (b.snd_swnd, b.pre_snd_swnd, b.expct_th, b.mode),
        (100_000, 80_000, 1_125_000, Mode::Updating)
    );
    b.t_msrd_th = 1_250_000; // it rose: once more, and the *expectation* grows, not the measurement
    b.swnd_update(&LITERAL);
    assert_eq!(
        (b.snd_swnd, b.pre_snd_swnd, b.expct_th, b.mode),
        (125_000, 100_000, 1_265_625, Mode::Updating)
    );
    b.t_msrd_th = b.expct_th; // equality is not "larger"
    b.swnd_update(&LITERAL);
    assert_eq!((b.snd_swnd, b.mode), (100_000, Mode::UpdateStart));
    b.bounded_by(99_999);
    assert_eq!(b.mode, Mode::NotUpdate);
    b.swnd_update(&LITERAL);
    assert_eq!((b.snd_swnd, b.mode), (100_000, Mode::UpdateStart), "one period of rest");
    b.bounded_by(100_000);
    assert_eq!(b.mode, Mode::UpdateStart, "equal windows forbid nothing");
}

#[test]
fn an_unlimited_window_does_not_overflow_when_enlarged() {
    let mut b = block();
    (0..100).for_each(|_| {
        b.mode = Mode::UpdateStart;
        b.swnd_update(&LITERAL);
    });
    assert_eq!(b.snd_swnd, UNLIMITED);
}

#[test]
fn a_loss_in_the_first_period_uses_what_it_holds_and_never_less_than_two_segments() {
    let mut b = ControlBlock { t_acked: 60_000, t_minrtt: 14, ..block() };
    b.loss(8600);
    assert_eq!(b.snd_swnd, 28_000);
    let mut nothing = ControlBlock { t_minrtt: 14, ..block() };
    nothing.loss(8600);
    assert_eq!(nothing.snd_swnd, 8600);
}

#[test]
fn an_rtt_under_the_clock_counts_as_1_ms() {
    let mut b = block();
    b.rtt(20);
    b.rtt(0);
    assert_eq!((b.t_minrtt, b.t_rtt), (1, 1));
}

/// Section 4.2 states, clock reading apart: RTT part 1 branch, 1 assignment (we also clamp and store `t_rtt`); loss part
/// 1 multiplication, 1 division, 2 branches, 3 assignments; output 2 branches, 1 assignment; timer 6 assignments, 2 branches,
/// 1 multiplication, 1 subtraction, 2 divisions. Ours, counted by running them:
#[test]
fn costs_at_the_places_of_section_4_2() {
    let loss = control::cost(Place::InputLoss);
    assert_eq!((loss.multiplications, loss.divisions, loss.branches, loss.assignments), (1, 1, 2, 3));
    let timer = control::cost(Place::Timer);
    assert_eq!((timer.multiplications, timer.divisions, timer.branches, timer.assignments), (2, 1, 1, 3));
    let output = control::cost(Place::Output);
    assert_eq!(
        output,
        Operations { branches: 3, assignments: 2, ..Operations::default() },
        "min3 and the mode"
    );
    let rtt = control::cost(Place::InputRtt);
    assert_eq!((rtt.branches, rtt.assignments, rtt.divisions), (3, 2, 0));
}

mod in_a_connection {
    use super::*;
    use crate::congestion::reno::Reno;
    use crate::registry::{Settings, Value};
    use std::collections::BTreeMap;
    use std::string::ToString;

    fn settings(entry: &Entry, change: &[(&str, Value)]) -> Settings {
        let mut all = BTreeMap::new();
        for p in entry.parameters {
            let d = p.default;
            let value = match p.kind {
                Kind::Count => Value::Count(d.parse().unwrap()),
                Kind::Ratio => Value::Ratio(d.parse().unwrap()),
                Kind::Flag => Value::Flag(d == "true"),
                Kind::Word(_) => Value::Word(d.to_string()),
                Kind::Time => Value::Time(match d {
                    "30ms" => Duration::from_millis(30),
                    "1.5s" => Duration::from_millis(1500),
                    _ => Duration::from_secs(10),
                }),
                other => panic!("{other:?}"),
            };
            all.insert(p.name.to_string(), value);
        }
        for (name, value) in change {
            all.insert(name.to_string(), value.clone());
        }
        Settings(all)
    }

    fn reno() -> Box<dyn Controller> {
        let all = [
            ("extra", Value::Count(8)),
            ("validate", Value::Flag(false)),
            ("count_bytes", Value::Flag(false)),
        ];
        Box::new(Reno::new(&Settings(all.into_iter().map(|(k, v)| (k.to_string(), v)).collect())).unwrap())
    }

    fn becc(change: &[(&str, Value)]) -> Becc {
        let mut b = Becc::new(&settings(&ENTRY, change), reno(), Rng::new(1, 1)).unwrap();
        let max_window = Bytes(65_535 << 5);
        b.on_start(&Start { now: Time::ZERO, mss: 4300, initial_window: Bytes(4300), max_window, rtt: None });
        b
    }

    fn ack(b: &mut Becc, ms: u64, acked: u64, una: u64) {
        b.on_ack(&Ack {
            now: Time::from_millis(ms),
            acked: Bytes(acked),
            in_flight: Bytes(0),
            una,
            max: una,
            rtt: None,
            echo: Some(Duration::from_millis(14)),
            min_rtt: None,
            round_start: false,
            in_recovery: false,
            window_limited: true,
            ce: false,
            rate: None,
        });
    }

    fn duplicate(b: &mut Becc, ms: u64, count: u32, una: u64, max: u64) {
        b.on_duplicate_ack(&DuplicateAck { now: Time::from_millis(ms), count, una, max, echo: None });
    }

    #[test]
    fn the_fourth_duplicate_sets_the_window_and_the_third_does_not() {
        let mut b = becc(&[]);
        (0..63).for_each(|i| ack(&mut b, 10, 4300, i * 4300)); // 270,900 bytes in the first 30 ms
        for count in 1..=3 {
            duplicate(&mut b, 40, count, 270_900, 500_000);
        }
        assert_eq!(b.block().snd_swnd, UNLIMITED);
        duplicate(&mut b, 40, 4, 270_900, 500_000);
        assert_eq!(b.block().snd_swnd, 126_420);
        assert_eq!(b.window(), Bytes(126_420), "min3: the bandwidth window is the smallest");
    }

    #[test]
    fn the_guard_refuses_a_second_trigger_until_the_old_data_is_acknowledged() {
        for (guard, expected) in [(false, 8600), (true, 126_420)] {
            let mut b = becc(&[("guard", Value::Flag(guard))]);
            (0..63).for_each(|i| ack(&mut b, 10, 4300, i * 4300));
            duplicate(&mut b, 40, 4, 270_900, 500_000);
            ack(&mut b, 2000, 4300, 275_200);
            duplicate(&mut b, 2001, 4, 275_200, 500_000); // of data resent after the timeout
            assert_eq!(b.block().snd_swnd, expected, "guard {guard}");
        }
    }

    #[test]
    fn callouts_catch_up_in_order_after_silence() {
        let mut b = becc(&[]);
        (0..63).for_each(|i| ack(&mut b, 10, 4300, i * 4300));
        duplicate(&mut b, 40, 4, 270_900, 500_000);
        // 1.5 s: NotUpdate -> UpdateStart; 3.0 s: enlarge; the congestion window is larger all the while.
        b.set_congestion_window(Bytes(1 << 20));
        ack(&mut b, 3001, 4300, 280_000);
        assert_eq!((b.block().snd_swnd, b.block().mode), (158_025, Mode::Updating));
        ack(&mut b, 4501, 4300, 284_300);
        assert_eq!(
            (b.block().snd_swnd, b.block().mode),
            (126_420, Mode::UpdateStart),
            "the rate did not follow"
        );
    }

    #[test]
    fn silence_that_is_skipped_ends_as_silence_that_is_counted() {
        for minutes in [1, 7, 60 * 24] {
            let (mut counted, mut skipped) = (becc(&[]), becc(&[]));
            for b in [&mut counted, &mut skipped] {
                (0..63).for_each(|i| ack(b, 10, 4300, i * 4300));
                duplicate(b, 40, 4, 270_900, 500_000);
                b.set_congestion_window(Bytes(1 << 20));
                ack(b, 6000, 4300, 280_000);
            }
            // The first looks in every 2 s, so nothing is ever long enough to be skipped.
            let end = minutes * 60_000;
            (6..end / 1000).step_by(2).for_each(|s| counted.catch_up(Time::from_millis(s * 1000)));
            [&mut counted, &mut skipped].into_iter().for_each(|b| b.catch_up(Time::from_millis(end)));
            let state =
                |b: &Becc| (b.next_timer, b.next_update, b.block.snd_swnd, b.block.mode, b.block.t_msrd_th);
            assert_eq!(state(&counted), state(&skipped), "{minutes} minutes");
        }
    }

    #[test]
    fn a_timeout_alone_leaves_the_bandwidth_window_as_it_is() {
        let mut b = becc(&[]);
        ack(&mut b, 10, 4300, 4300);
        b.on_congestion(&Congestion {
            now: Time::from_millis(1500),
            signal: Signal::Timeout,
            flight: Bytes(86_000),
        });
        assert_eq!(b.block().snd_swnd, UNLIMITED);
        assert_eq!(b.window(), Bytes(4300));
    }

    #[test]
    fn refused_settings_say_what_would_fit() {
        let make = |name: &str, value| {
            Becc::new(&settings(&ENTRY, &[(name, value)]), reno(), Rng::new(1, 1)).err().unwrap()
        };
        for (name, value) in [
            ("trigger", Value::Count(0)),
            ("ms_period", Value::Time(Duration::from_micros(500))),
            ("update_period", Value::Time(Duration::ZERO)),
            ("alpha", Value::Ratio(1.5)),
            ("window_gain", Value::Ratio(f64::NAN)),
        ] {
            let refused = make(name, value);
            assert_eq!(refused.parameter, name);
            assert!(
                refused.advice.contains("write")
                    || refused.advice.contains("for example")
                    || refused.advice.contains("paper")
            );
        }
    }
}
