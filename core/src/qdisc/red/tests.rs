//! RED in the numbers of its papers and of ns-2: the average, the probability, the gaps between victims, and who is marked.

use super::super::tests::{Watched, build, leave};
use super::*;
use crate::packet::Ecn;
use crate::rng::Rng;
use crate::units::Bytes;
use proptest::prelude::*;
use std::vec::Vec;

/// Thresholds of 5 and 15 packets; a weight that changes no average, so that tests can set it.
const STILL: Params = Params {
    min: 5.0,
    max: 15.0,
    weight: f64::MIN_POSITIVE,
    max_p: 0.1,
    gentle: true,
    wait: true,
    bytes: false,
    mean_packet: 500,
    packets_per_second: 100.0,
    mark_limit: 1.0,
    adaptive: false,
};

fn at(average: f64, params: Params) -> RedLaw {
    RedLaw { average, above: true, idle_since: None, ..RedLaw::new(params) }
}

#[track_caller]
fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-12, "{got}, not {want}");
}

#[test]
fn the_average_weighs_the_newest_sample_and_forgets_over_1_by_w_packets() {
    let mut law = at(0.0, Params { weight: 0.25, ..STILL });
    let mut rng = Rng::new(1, 1);
    let averages = [4, 8, 0].map(|queue| {
        law.arrive(Time::ZERO, queue, 500, &mut rng);
        law.average()
    });
    assert_eq!(averages, [1.0, 2.75, 2.0625], "0.25 x 4; 0.75 x 1 + 0.25 x 8; 0.75 x 2.75");
    // w = 0.002: 500 packets are one time constant.
    let mut slow = at(0.0, Params { weight: 0.002, ..STILL });
    for _ in 0..500 {
        slow.arrive(Time::ZERO, 4, 500, &mut rng);
    }
    assert!((slow.average() / 4.0 - (1.0 - libm::exp(-1.0))).abs() < 0.001, "{}", slow.average());
}

#[test]
fn an_idle_line_could_have_sent_so_many_packets_that_found_nothing_waiting() {
    let mut law = at(8.0, Params { weight: 0.5, ..STILL });
    law.idle_from(Time::from_millis(1000));
    law.arrive(Time::from_millis(1039), 0, 500, &mut Rng::new(1, 1));
    close(law.average(), 0.5); // 3.9 packets at 100 a second are 3: 8 / 2^3, and once more for this one
    law.arrive(Time::from_millis(9000), 0, 500, &mut Rng::new(1, 1));
    close(law.average(), 0.25); // idle no longer
    law.idle_from(Time::from_millis(9500));
    law.arrive(Time::from_millis(9400), 0, 500, &mut Rng::new(1, 1));
    close(law.average(), 0.125); // the last packet was still being transmitted
}

/// A RED queue in packets on a line of 100 packets of 1000 bytes per second.
fn red(values: &[(&str, Value)]) -> Watched {
    let mut all = std::vec![
        ("limit", Value::Packets(50)),
        ("min", Value::Packets(5)),
        ("max", Value::Packets(15)),
        ("rate", Value::Rate(Rate(800_000))),
        ("mean_packet", Value::Bytes(Bytes(1000))),
        ("gentle", Value::Flag(true)),
        ("wait", Value::Flag(true)),
        ("mark_limit", Value::Ratio(1.0)),
    ];
    all.retain(|(name, _)| values.iter().all(|(given, _)| given != name));
    all.extend_from_slice(values);
    Watched::new(build("red", &all, None, 7).unwrap())
}

fn shown(watched: &Watched, name: &str) -> f64 {
    let mut found = None;
    watched.qdisc.inspect(&mut |n, value| {
        if n == name {
            found = Some(value)
        }
    });
    found.unwrap_or_else(|| panic!("it does not show {name}"))
}

#[test]
fn a_line_is_idle_once_it_has_transmitted_the_last_packet() {
    let mut queue = red(&[("weight", Value::Ratio(0.5))]);
    (0..4).for_each(|_| queue.enqueue(0, 1000));
    close(shown(&queue, "average_packets"), 2.125); // 0, 0.5, 1.25, 2.125
    queue.now = Time::from_millis(500);
    leave(&mut queue, 4);
    // The last one of 10 ms leaves at 500; 2 more could have been sent by 535.
    queue.now = Time::from_millis(535);
    queue.enqueue(0, 1000);
    close(shown(&queue, "average_packets"), 2.125 / 8.0);
}

#[test]
fn the_automatic_weight_is_ns_2s() {
    let mut queue = red(&[("rate", Value::Rate(Rate(1_500_000))), ("weight", Value::Ratio(0.0))]);
    queue.enqueue(0, 1000);
    queue.enqueue(0, 1000);
    close(shown(&queue, "average_packets"), 1.0 - libm::exp(-1.0 / 187.5)); // 187.5 packets of 1000 B a second
}

#[test]
fn the_probability_rises_to_max_p_at_max_and_gently_to_1_at_twice_that() {
    let p = |average, gentle| at(average, Params { gentle, ..STILL }).base_probability();
    for (average, gently, not) in [(5.0, 0.0, 0.0), (10.0, 0.05, 0.05), (15.0, 0.1, 1.0), (22.5, 0.55, 1.0)] {
        close(p(average, true), gently);
        close(p(average, false), not);
    }
    close(p(30.0, true), 1.0);
}

/// Packets from one victim to the next, at p_b = 1/16.
fn gaps(wait: bool, victims: usize) -> Vec<u64> {
    let mut law = at(10.0, Params { max_p: 0.125, wait, ..STILL });
    let (mut rng, mut gaps, mut gap) = (Rng::new(3, 1), Vec::new(), 0);
    while gaps.len() < victims {
        gap += 1;
        if law.arrive(Time::ZERO, 10, 500, &mut rng) == Verdict::Notify {
            gaps.push(core::mem::take(&mut gap));
        }
    }
    gaps
}

#[test]
fn gaps_between_victims_are_uniform_and_waiting_doubles_the_shortest() {
    const VICTIMS: usize = 16_000;
    // count p_b / 16: with wait from 1/p_b to just under 2/p_b, without from 1 to just under 1/p_b.
    for (wait, range) in [(true, 16..=31), (false, 1..=15)] {
        let gaps = gaps(wait, VICTIMS);
        let share = VICTIMS as f64 / range.clone().count() as f64;
        let sigma = libm::sqrt(share * (1.0 - share / VICTIMS as f64));
        for length in range.clone() {
            let seen = gaps.iter().filter(|g| **g == length).count() as f64;
            assert!((seen - share).abs() < 4.0 * sigma, "wait {wait}: {seen} gaps of {length}, not {share}");
        }
        assert!(gaps.iter().all(|g| range.contains(g)), "wait {wait}: a gap outside {range:?}");
    }
}

#[test]
fn the_crossing_of_min_and_a_queue_of_one_strike_nobody() {
    let mut law = RedLaw { above: false, ..at(29.0, STILL) };
    let mut rng = Rng::new(1, 1);
    law.count = 1000;
    assert_eq!(law.arrive(Time::ZERO, 9, 500, &mut rng), Verdict::Pass, "the average has just crossed");
    assert_eq!((law.above, law.count), (true, 1));
    law.count = 1000;
    assert_eq!(law.arrive(Time::ZERO, 1, 500, &mut rng), Verdict::Pass, "a single packet is no congestion");
    assert!(!law.above);
    assert_eq!(law.arrive(Time::ZERO, 9, 500, &mut rng), Verdict::Pass, "so this is a crossing again");
    law.count = 1000;
    assert_eq!(law.arrive(Time::ZERO, 9, 500, &mut rng), Verdict::Notify, "1001 p_b is beyond 2");
    assert_eq!(law.count, 0);
}

#[test]
fn large_packets_are_struck_more_often_in_byte_mode() {
    let law = |count_bytes| {
        let mut law = at(10.0, Params { bytes: true, wait: false, ..STILL }); // p_b = 0.05
        law.count_bytes = count_bytes;
        law
    };
    // 2600 bytes are 5 mean packets: 0.05 / (1 - 5 x 0.05) = 1/15 for a mean packet.
    close(law(2600).probability(500), 1.0 / 15.0);
    close(law(2600).probability(1500), 3.0 / 15.0);
    close(law(2600).probability(40), 40.0 / 500.0 / 15.0);
    close(law(2600).probability(9000), 1.0);
    close(law(10_000).probability(40), 1.0); // due in any case
}

/// Fills the queue until the instantaneous average (weight 1) is `packets`, with whatever becomes of those packets.
fn filled(packets: u64, ecn: Ecn, values: &[(&str, Value)]) -> Watched {
    let mut all = std::vec![("weight", Value::Ratio(1.0))];
    all.extend_from_slice(values);
    let mut queue = red(&all);
    queue.ecn = ecn;
    while queue.qdisc.backlog().packets < packets {
        queue.enqueue(0, 1000);
    }
    queue
}

/// Of packets that found `packets` waiting and left by the head one for one: how many were marked, how many dropped.
fn struck(packets: u64, ecn: Ecn, values: &[(&str, Value)]) -> (usize, usize) {
    let mut queue = filled(packets, ecn, values);
    let (left, dropped) = (queue.left.len(), queue.dropped.len());
    for _ in 0..1000 {
        queue.enqueue(0, 1000);
        if queue.qdisc.backlog().packets > packets {
            queue.dequeue();
        }
    }
    assert!(queue.dropped.iter().all(|(_, why)| *why == DropReason::Early));
    let marked = |(_, p): &&(Time, super::super::tests::Parcel)| p.ecn == Ecn::Ce;
    (queue.left[left..].iter().filter(marked).count(), queue.dropped.len() - dropped)
}

#[test]
fn ecn_capable_packets_are_marked_and_others_dropped() {
    // p_b = 0.05 with wait: a victim each 20 to 39 packets, 29.5 on average: 34 of 1000.
    let (marked, dropped) = struck(10, Ecn::Ect0, &[]);
    assert!((26..=50).contains(&marked) && dropped == 0, "{marked} marked, {dropped} dropped");
    let (marked, dropped) = struck(10, Ecn::NotEct, &[]);
    assert!((26..=50).contains(&dropped) && marked == 0, "{marked} marked, {dropped} dropped");
    let (marked, dropped) = struck(10, Ecn::Ect0, &[("ecn", Value::Flag(false))]);
    assert!((26..=50).contains(&dropped) && marked == 0, "{marked} marked, {dropped} dropped");
}

#[test]
fn beyond_its_limits_a_mark_becomes_a_drop() {
    let limit = |p| [("mark_limit", Value::Ratio(p))];
    assert_eq!(struck(10, Ecn::Ect0, &limit(0.05)).0, 0, "p_b = 0.05 is not below 0.05");
    assert_eq!(struck(10, Ecn::Ect0, &limit(0.051)).1, 0);
    // Gentle until 30, else until 15: then everything is dropped, whatever it is capable of.
    for (hard, gentle) in [(30, true), (15, false)] {
        let mut queue = filled(hard, Ecn::Ect0, &[("gentle", Value::Flag(gentle))]);
        let before = queue.dropped.len();
        (0..10).for_each(|_| queue.enqueue(0, 1000));
        assert_eq!(queue.dropped[before..].iter().filter(|d| d.1 == DropReason::Early).count(), 10);
    }
}

#[test]
fn what_finds_no_room_is_dropped_as_full_and_a_slow_average_lets_it_come_to_that() {
    let mut queue = red(&[]);
    queue.ecn = Ecn::Ect0;
    // The usual weight of 0.1 is too slow for 25 packets at once: the average is below 15 then.
    let mut fast = red(&[("weight", Value::Ratio(0.002)), ("limit", Value::Packets(20))]);
    (0..25).for_each(|_| fast.enqueue(0, 1000));
    assert_eq!(fast.dropped.iter().map(|d| d.1).collect::<Vec<_>>(), [DropReason::Full; 5]);
    (0..200).for_each(|_| queue.enqueue(0, 1000));
    assert!(queue.qdisc.backlog().packets <= 50);
}

#[test]
fn in_bytes_the_average_and_the_limit_are_bytes() {
    let bytes = |n| Value::Bytes(Bytes(n));
    let mut queue = red(&[
        ("limit", bytes(3000)),
        ("min", bytes(1000)),
        ("max", bytes(100_000)),
        ("weight", Value::Ratio(0.5)),
    ]);
    [1000, 1500, 501, 500].into_iter().for_each(|size| queue.enqueue(0, size));
    assert_eq!(
        queue.dropped.iter().map(|(p, why)| (p.number, *why)).collect::<Vec<_>>(),
        [(3, DropReason::Full)]
    );
    // Before each: 0, 1000, 2500, 2500.
    close(shown(&queue, "average_queue"), 2500.0 / 2.0 + 2500.0 / 4.0 + 1000.0 / 8.0);
}

#[test]
fn adaptive_red_moves_max_p_towards_an_average_midway() {
    let moved = |average: f64, max_p: f64| {
        let mut law = at(average, Params { max_p, adaptive: true, ..STILL });
        let mut rng = Rng::new(1, 1);
        [500, 501, 1001, 1002].map(|ms| {
            law.arrive(Time::from_millis(ms), 0, 500, &mut rng);
            law.max_p()
        })
    };
    // The middle fifth of 5 to 15 is 9 to 11. Up by min(0.01, max_p / 4), down by 0.9, each when over half a second has passed.
    assert_eq!(moved(11.1, 0.1), [0.1, 0.11, 0.11, 0.12]);
    close(moved(11.1, 0.02)[1], 0.025);
    close(moved(8.9, 0.1)[1], 0.09);
    close(moved(8.9, 0.1)[3], 0.081);
    for (average, max_p) in [(9.1, 0.1), (10.9, 0.1), (8.9, 0.01), (11.1, 0.5)] {
        assert_eq!(moved(average, max_p), [max_p; 4], "{average} {max_p}");
    }
}

#[test]
fn adaptive_red_settles_where_the_average_is_midway() {
    // A source that needs p_b = 0.2 to keep 10 packets waiting: its queue grows below that, and shrinks above.
    let params = Params { weight: 0.05, adaptive: true, wait: false, ..STILL };
    let (mut law, mut rng, mut queue) = (at(10.0, params), Rng::new(5, 1), 10.0f64);
    for i in 0..200_000u64 {
        law.arrive(Time::from_nanos(i * 1_000_000), queue as u64, 500, &mut rng);
        queue = (queue + 0.5 * (0.2 - law.base_probability())).clamp(0.0, 40.0);
    }
    assert!((0.3..0.51).contains(&law.max_p()), "p_b = 0.2 midway is max_p = 0.4, not {}", law.max_p());
    assert!((8.5..11.5).contains(&law.average()), "{}", law.average());
}

#[test]
fn an_adaptive_max_p_begins_within_its_bounds() {
    let values = [("adaptive", Value::Flag(true)), ("max_p", Value::Ratio(0.6))];
    assert_eq!(build("red", &values, None, 0).err().map(|unfit| unfit.parameter), Some("max_p"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the parameters and the arrivals: probabilities are probabilities, and the average lies among what was seen.
    #[test]
    fn no_history_makes_a_probability_below_0_or_above_1(
        (min, range) in (0.0..1e6f64, 1e-3..1e6f64), weight in 1e-9..=1.0f64, max_p in 0.0..=1.0f64,
        flags: [bool; 4], mean_packet in 1u64..100_000, packets_per_second in 1e-3..1e9f64,
        arrivals in proptest::collection::vec((0u64..10_000_000_000, 0u64..4_000_000, 1u64..100_000, any::<bool>()), 1..200),
    ) {
        let [gentle, wait, bytes, adaptive] = flags;
        let max = min + range;
        let params = Params {
            min, max, weight, max_p, gentle, wait, bytes, mean_packet, packets_per_second, mark_limit: 1.0, adaptive,
        };
        let (mut law, mut now, mut rng) = (RedLaw::new(params), Time::ZERO, Rng::new(0, 0));
        for (later, queue, size, idle) in arrivals {
            now += Duration::from_nanos(later);
            law.arrive(now, queue, size, &mut rng);
            for p in [law.base_probability(), law.probability(size), law.max_p()] {
                prop_assert!((0.0..=1.0).contains(&p), "{p} of {law:?}");
            }
            prop_assert!((0.0..=4e6).contains(&law.average()), "{law:?}");
            if idle {
                law.idle_from(now);
            }
        }
    }
}
