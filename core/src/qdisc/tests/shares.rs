//! How `priority`, `drr` and `wfq` divide a line.

use super::served::{Arrivals, LINE, before, serve, through, together};
use crate::ackwin::Room;
use crate::qdisc::DropReason;
use crate::qdisc::class::{Class, Site};
use crate::registry::Value;
use crate::time::Time;
use crate::units::Bytes;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::format;
use std::vec::Vec;

const WITH_CLASSES: [&str; 4] = ["priority", "drr", "wfq", "reserve"];

fn weighted(weights: &[u32]) -> Site {
    let class = |(i, weight): (usize, &u32)| Class { weight: *weight, ..Class::plain(format!("{i}")) };
    Site { line: Some(LINE), classes: weights.iter().enumerate().map(class).collect() }
}

fn word(clock: &str) -> Value {
    Value::Word(clock.into())
}

/// `count` packets of this size that come at once at `at`.
fn burst(at: Time, class: u32, size: u64, count: usize) -> Arrivals {
    (0..count).map(|_| (at, class, size)).collect()
}

/// When each packet ends in a fluid system that serves all classes at once, by weight: worked out from event to event, without any
/// virtual time. In nanoseconds, by the packet's place among the arrivals.
fn fluid(arrivals: &Arrivals, weights: &[u32]) -> Vec<f64> {
    let mut ends = std::vec![f64::NAN; arrivals.len()];
    let mut queues: BTreeMap<u32, VecDeque<(usize, f64)>> = BTreeMap::new();
    let (mut now, mut next) = (0.0, 0);
    loop {
        let total: f64 = queues.keys().map(|class| weights[*class as usize] as f64).sum();
        let bits_per_ns = |class: u32| LINE.rate.0 as f64 * 1e-9 * weights[class as usize] as f64 / total;
        let first = queues
            .iter()
            .map(|(class, queue)| now + queue[0].1 / bits_per_ns(*class))
            .fold(f64::MAX, f64::min);
        let arrival = arrivals.get(next).map_or(f64::MAX, |(at, ..)| at.as_nanos() as f64);
        let at = first.min(arrival);
        if at == f64::MAX {
            return ends;
        }
        for (class, queue) in &mut queues {
            queue[0].1 -= (at - now) * bits_per_ns(*class);
            if queue[0].1 < 1e-6 {
                ends[queue.pop_front().unwrap().0] = at;
            }
        }
        queues.retain(|_, queue| !queue.is_empty());
        now = at;
        if arrival <= at {
            let (_, class, size) = arrivals[next];
            queues.entry(class).or_default().push_back((next, size as f64 * 8.0));
            next += 1;
        }
    }
}

/// From gaps, classes and sizes.
fn arrivals(given: &[(u64, u32, u64)], classes: usize) -> Arrivals {
    let mut now = Time::ZERO;
    let one = |(gap, class, size): &(u64, u32, u64)| {
        now += Duration::from_nanos(*gap);
        (now, class % classes as u32, *size)
    };
    given.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Parekh and Gallager 1993, theorem 1: no packet leaves later than in the fluid system plus Lmax / C.
    #[test]
    fn wfq_is_never_a_packet_behind_the_fluid_system(
        weights in prop::collection::vec(1u32..20, 1..6),
        given in prop::collection::vec((0u64..1_500_000, 0u32..6, 40u64..1600), 1..150),
    ) {
        let arrivals = arrivals(&given, weights.len());
        let mut queue = before(weighted(&weights), "wfq", &[("clock", word("gps"))]).unwrap();
        let (sent, dropped) = serve(&mut queue, LINE.rate, &arrivals, Time::MAX);
        prop_assert_eq!((sent.len(), dropped.len()), (arrivals.len(), 0));
        let ends = fluid(&arrivals, &weights);
        let longest = given.iter().map(|(.., size)| *size).max().unwrap_or(0);
        let packet = LINE.rate.time_for(Bytes(longest)).as_nanos() as f64;
        for s in sent {
            let end = ends[s.number as usize - 1];
            prop_assert!(s.done.as_nanos() as f64 <= end + packet + 10.0, "{:?}: {} in the fluid system", s, end);
        }
    }

    /// Goyal, Vin and Cheng 1996, theorem 1: whenever two classes both have packets, they get the same by weight, to a packet of each.
    /// Shreedhar and Varghese 1996, theorem 2: to a quantum and two packets. Whatever a third class does.
    #[test]
    fn two_backlogged_classes_share_by_weight(
        weights in (1u32..20, 1u32..20, 1u32..20),
        sizes in prop::collection::vec((40u64..1600, 40u64..1600), 200..400),
        third in prop::collection::vec((0u64..3_000_000, 2u32..3, 40u64..1600), 0..100),
    ) {
        let weights = [weights.0, weights.1, weights.2];
        let both = sizes.iter().flat_map(|(a, b)| [(Time::ZERO, 0, *a), (Time::ZERO, 1, *b)]).collect();
        let all = together([both, arrivals(&third, 3)]);
        let most = |class| all.iter().filter(|(_, c, _)| *c == class).map(|(.., size)| *size).max().unwrap_or(0) as f64;
        let by = |class: usize, bytes: f64| bytes / weights[class] as f64;
        let start = by(0, most(0)) + by(1, most(1));
        let round = LINE.mtu.0 as f64 + start;
        for (name, values, bound) in [("wfq", [("clock", word("start"))], start), ("drr", [("quantum", Value::Bytes(Bytes(0)))], round)] {
            let mut queue = before(weighted(&weights), name, &values).unwrap();
            let (sent, _) = serve(&mut queue, LINE.rate, &all, Time::MAX);
            let of = |class| sizes.iter().map(move |(a, b)| if class == 0 { *a } else { *b }).sum::<u64>();
            let (mut got, mut ahead) = ([0u64; 3], (0.0f64, 0.0f64));
            for s in sent {
                got[s.class as usize] += s.size;
                if got[0] == of(0) || got[1] == of(1) {
                    break; // one of them has no more packets
                }
                let lead = by(0, got[0] as f64) - by(1, got[1] as f64);
                ahead = (ahead.0.min(lead), ahead.1.max(lead));
            }
            prop_assert!(ahead.1 - ahead.0 <= bound + 1e-6, "{}: {:?}, bound {}", name, ahead, bound);
        }
    }

    /// Whatever others send, a class that stays within its own room loses nothing.
    #[test]
    fn no_class_loses_packets_for_anothers_sake(flood in prop::collection::vec((0u64..200_000, 1u32..4, 40u64..1600), 100..600)) {
        for name in WITH_CLASSES {
            let mut site = weighted(&[1, 5, 1, 100]);
            let mut classes = site.classes.to_vec();
            classes.iter_mut().for_each(|class| class.limit = Some(Room::Bytes(9000)));
            // Last of all in every discipline, with three packets of room and never more there than that.
            (classes[0].limit, classes[3].priority) = (Some(Room::Packets(3)), 1);
            classes[1].rate = Some(crate::units::Rate(1_000_000));
            classes[1].limit = Some(Room::Packets(5));
            site.classes = classes.into();
            let mut queue = before(site, name, &[]).unwrap();
            let all = together([burst(Time::ZERO, 0, 1500, 3), arrivals(&flood, 4).into_iter().map(|(at, c, s)| (at, c.max(1), s)).collect()]);
            let (sent, dropped) = serve(&mut queue, LINE.rate, &all, Time::MAX);
            prop_assert_eq!(sent.len() + dropped.len(), all.len());
            prop_assert_eq!(through(&sent, 0, Time::MAX), 4500);
            prop_assert!(dropped.iter().all(|(class, _)| *class != 0), "{} dropped {:?}", name, dropped);
        }
    }
}

#[test]
fn weights_divide_a_line_and_what_one_leaves_the_others_take() {
    for (name, values) in [
        ("wfq", [("clock", word("gps"))]),
        ("wfq", [("clock", word("start"))]),
        ("drr", [("quantum", Value::Bytes(Bytes(0)))]),
    ] {
        let mut queue = before(weighted(&[1, 3, 4]), name, &values).unwrap();
        // 8 * 1.25 MB/s: the third has packets for 0.1 s of its half; then it is 1 to 3.
        let all = together([
            burst(Time::ZERO, 0, 500, 900),
            burst(Time::ZERO, 1, 1500, 900),
            burst(Time::ZERO, 2, 1000, 63),
        ]);
        let (sent, _) = serve(&mut queue, LINE.rate, &all, Time::from_millis(300));
        let (first, then) = (Time::from_millis(100), Time::from_millis(300));
        let shares = |until| [0, 1, 2].map(|class| through(&sent, class, until) as i64);
        let (one, two) = (shares(first), shares(then));
        for (got, want) in one.iter().chain(&two).zip([15_625, 46_875, 62_500, 78_125, 234_375, 63_000]) {
            assert!((got - want).abs() <= 3200, "{name}: {one:?} and {two:?}");
        }
    }
}

#[test]
fn without_classes_each_flow_has_the_same_and_is_forgotten_when_it_is_over() {
    for (name, clock) in [("wfq", "gps"), ("wfq", "start"), ("drr", "gps")] {
        let mut queue =
            before(super::flows(), name, &[("clock", word(clock)), ("quantum", Value::Bytes(Bytes(0)))])
                .unwrap();
        // A flow that sends single packets, always a new number, beside one that floods: one in two packets.
        let single = (0..500u64).map(|i| (Time::from_millis(2 * i), 1000 + i as u32, 1000)).collect();
        let all = together([burst(Time::ZERO, 7, 1000, 1000), single]);
        let (sent, dropped) = serve(&mut queue, LINE.rate, &all, Time::MAX);
        assert!(dropped.is_empty());
        let slowest = sent.iter().filter(|s| s.class != 7).map(|s| s.took()).max().unwrap();
        // Its own packet, and the one on the line, 0.8 ms each; or a turn of the other flow: the quantum of 1600 bytes and what it kept.
        let most = if name == "drr" { 3_400_010 } else { 1_600_010 };
        assert!(slowest <= Duration::from_nanos(most), "{name} {clock}: {slowest:?}");
    }
}

#[test]
fn a_level_leaves_nothing_to_the_next_while_it_has_packets() {
    let level = |name, priority| Class { priority, ..Class::plain(name) };
    let classes = [level("a", 2), level("b", 1), level("c", 2), level("rest", 8)];
    let mut queue = before(Site { line: Some(LINE), classes: classes.into() }, "priority", &[]).unwrap();
    let at = Time::ZERO;
    let all = [(at, 9, 100), (at, 0, 100), (at, 2, 100), (at, 0, 100), (at, 1, 100), (at, 1, 100)].to_vec();
    let (sent, _) = serve(&mut queue, LINE.rate, &all, Time::MAX);
    // The first was alone when it came? No: all came at once, before the line asked.
    let order: Vec<u64> = sent.iter().map(|s| s.number).collect();
    assert_eq!(
        order,
        [5, 6, 2, 3, 4, 1],
        "level 1, level 2 in order of arrival, and what has no class of its own"
    );
}

#[test]
fn a_class_has_its_own_room_and_its_own_reasons() {
    let site = weighted(&[1, 1]);
    let mut classes = site.classes.to_vec();
    classes[0].limit = Some(Room::Bytes(1700));
    let mut queue =
        before(Site { classes: classes.into(), ..site }, "drr", &[("class_limit", Value::Packets(1))])
            .unwrap();
    let at = Time::ZERO;
    let all = [(at, 0, 1701), (at, 0, 1000), (at, 0, 701), (at, 0, 700), (at, 1, 1500), (at, 1, 40)].to_vec();
    let (sent, dropped) = serve(&mut queue, LINE.rate, &all, Time::MAX);
    assert_eq!(sent.len(), 3);
    assert_eq!(dropped, [(0, DropReason::NeverFits), (0, DropReason::Full), (1, DropReason::Full)]);
}

#[test]
fn classes_that_cannot_be_are_refused_with_advice() {
    let plain = Class::plain;
    let cases = [
        ("drr", [Class { weight: 0, ..plain("a") }, plain("rest")], "write a weight of 1 to 1000000, not 0"),
        (
            "wfq",
            [Class { priority: 0, ..plain("a") }, plain("rest")],
            "write a priority of 1 (first) to 8, not 0",
        ),
        (
            "wfq",
            [Class { priority: 9, ..plain("a") }, plain("rest")],
            "write a priority of 1 (first) to 8, not 9",
        ),
        ("priority", [plain("rest"), plain("rest")], "there are two of this name: give each its own"),
        (
            "wfq",
            [Class { limit: Some(Room::Bytes(1599)), ..plain("a") }, plain("rest")],
            "at least a packet: \"1600B\"",
        ),
        ("drr", [Class { limit: Some(Room::Packets(0)), ..plain("a") }, plain("rest")], "at least 1p"),
    ];
    for (name, classes, advice) in cases {
        let unfit = before(Site { line: Some(LINE), classes: classes.into() }, name, &[]).err().unwrap();
        assert!(unfit.advice.contains(advice), "{}", unfit.advice);
    }
    for name in ["priority", "reserve"] {
        let unfit = before(super::flows(), name, &[]).err().unwrap();
        assert!(
            unfit.advice.contains("it needs classes") && unfit.advice.contains("class = [{ name = "),
            "{}",
            unfit.advice
        );
    }
    for (name, parameter) in [("wfq", "clock"), ("drr", "quantum")] {
        let unfit =
            before(Site::default(), name, &[("clock", word("gps")), ("quantum", Value::Bytes(Bytes(0)))])
                .err()
                .unwrap();
        assert_eq!(unfit.parameter, parameter, "nobody knows the line");
    }
    assert!(before(Site::default(), "wfq", &[("clock", word("start"))]).is_ok());
}
