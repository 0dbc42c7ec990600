//! Promises are kept, and what cannot be kept is refused.

use super::*;
use crate::limit::calculus::{Hop, end_to_end};
use crate::qdisc::tests::served::{Arrivals, LINE, Sent, before, serve, through, together};
use crate::qdisc::tests::{Boxed, Parcel};
use crate::rng::Rng;
use proptest::prelude::*;
use std::vec;

fn reserved(name: &str, rate: u64, ahead: u64) -> Class {
    Class { rate: Some(Rate(rate)), ahead: Bytes(ahead), ..Class::plain(name) }
}

fn reserve(classes: &[Class]) -> Result<Boxed, Unfit> {
    before(Site { line: Some(LINE), classes: classes.into() }, "reserve", &[])
}

/// What keeps to (rate, ahead), as greedily as it can: packets of these sizes, each after a pause and when its credit is there.
fn conforming(class: u32, of: &Class, from: Time, packets: &[(u64, u64)]) -> Arrivals {
    let mut bucket = Bucket::new(of.rate.unwrap(), of.ahead.max(LINE.mtu));
    let mut now = from;
    let one = |(pause, size): &(u64, u64)| {
        now = bucket.ready_at(now + Duration::from_nanos(*pause), Bytes(*size));
        assert!(bucket.take(now, Bytes(*size)));
        (now, class, *size)
    };
    packets.iter().map(one).collect()
}

/// Packets of the line's MTU at this rate, whatever was promised.
fn flood(class: u32, rate: u64, until: Time) -> Arrivals {
    let gap = Rate(rate).time_for(LINE.mtu);
    (0..)
        .map(|i| Time::ZERO + gap * i)
        .take_while(|at| *at < until)
        .map(|at| (at, class, LINE.mtu.0))
        .collect()
}

fn longest(sent: &[Sent], class: u32) -> Duration {
    sent.iter().filter(|s| s.class == class).map(Sent::took).max().unwrap_or_default()
}

/// Instants are whole nanoseconds: at each of a packet's few events one may be lost.
const ROUNDING: Duration = Duration::from_nanos(10);

/// Classes that the line has room for, each with the shortest delay beside those before it and some more; the last is the rest.
fn set(wanted: &[(u64, u64, u64, bool)]) -> Vec<Class> {
    let server = Server { rate: LINE.rate, packet: LINE.mtu };
    let (mut classes, mut promises) = (Vec::new(), Vec::new());
    for (rate, ahead, more, surplus) in wanted {
        let class = reserved(&format!("{}", classes.len()), *rate, *ahead);
        let envelope = Envelope { burst: class.ahead.max(LINE.mtu), rate: Rate(*rate) };
        let Some(shortest) = server.shortest_delay(&promises, envelope, Duration::from_secs(10)) else {
            continue;
        };
        let delay = shortest + Duration::from_micros(*more);
        promises.push(Promise { envelope, delay });
        classes.push(Class { delay: Some(delay), surplus: *surplus, ..class });
    }
    classes.push(Class::plain("rest"));
    classes
}

fn wanted() -> impl Strategy<Value = Vec<(u64, u64, u64, bool)>> {
    prop::collection::vec(
        (100_000u64..4_000_000, 0u64..8000, prop_oneof![Just(0), 0u64..20_000], any::<bool>()),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Classes that keep to their reservation are through in time beside classes that do not, and lose nothing.
    #[test]
    fn what_conforms_is_through_in_time_whatever_others_send(
        wanted in wanted(),
        abusers in prop::collection::vec(any::<bool>(), 6),
        packets in prop::collection::vec((prop_oneof![3 => Just(0), 1 => 0u64..30_000_000], 40u64..=1600), 100),
        start in 0u64..40_000_000,
    ) {
        let classes = set(&wanted);
        let (end, rest) = (Time::from_millis(300), classes.len() as u32 - 1);
        let mut queue = reserve(&classes).unwrap();
        // All conforming bursts come at one instant, after others have had the line to themselves.
        let source = |(i, class): (usize, &Class)| match (class.rate, abusers[i]) {
            (Some(rate), true) => flood(i as u32, 3 * rate.0, end),
            (Some(_), false) => conforming(i as u32, class, Time::from_nanos(start), &packets[10 * i..]),
            (None, _) => flood(rest, LINE.rate.0, end),
        };
        let all = together(classes.iter().enumerate().map(source));
        let (sent, dropped) = serve(&mut queue, LINE.rate, &all, Time::MAX);
        for (i, class) in classes.iter().enumerate().filter(|(i, c)| c.rate.is_some() && !abusers[*i]) {
            let (i, delay) = (i as u32, class.delay.unwrap());
            prop_assert!(longest(&sent, i) <= delay + ROUNDING, "{:?} took {:?}", class, longest(&sent, i));
            prop_assert!(dropped.iter().all(|(c, _)| *c != i));
        }
    }

    /// Over several hops, each with its own cross traffic, a burst larger than what a hop takes at once is waited for once.
    #[test]
    fn over_several_hops_a_burst_is_waited_for_once(
        hops in prop::collection::vec((1_000_000u64..4_000_000, 0u64..4000, 0u64..5000), 2..5),
        burst in 2000u64..30_000, seed: u64,
    ) {
        let mut rng = Rng::new(seed, 0);
        let rate = hops.iter().map(|(rate, ..)| *rate).min().unwrap();
        let source = reserved("source", rate, burst);
        let sizes: Vec<_> = (0..120).map(|_| (if rng.chance(0.1) { rng.below(60_000_000) } else { 0 }, 40 + rng.below(1560))).collect();
        let mut arrivals: Vec<(Time, u64)> =
            conforming(0, &source, Time::from_millis(20), &sizes).into_iter().map(|(at, _, size)| (at, size)).collect();
        let entered = arrivals.clone();
        let mut path = Vec::new();
        for (rate, ahead, more) in hops {
            let other = set(&[(rate, ahead, more, rng.chance(0.5)), (5_000_000, 5000, 0, true)]);
            let end = Time::from_millis(1500);
            let ours = arrivals.iter().map(|(at, size)| (*at, 0, *size)).collect();
            let all = together([ours, flood(1, 9_000_000, end), flood(2, 5_000_000, end)]);
            let (sent, dropped) = serve(&mut reserve(&other).unwrap(), LINE.rate, &all, Time::MAX);
            prop_assert!(dropped.iter().all(|(class, _)| *class != 0));
            arrivals = sent.iter().filter(|s| s.class == 0).map(|s| (s.done, s.size)).collect();
            let curve = Envelope { burst: Bytes(ahead).max(LINE.mtu), rate: Rate(rate) };
            path.push(Hop { curve, latency: other[0].delay.unwrap() });
        }
        let bound = end_to_end(Envelope { burst: Bytes(burst), rate: Rate(rate) }, &path).unwrap();
        prop_assert_eq!(arrivals.len(), entered.len());
        for ((came, _), (left, _)) in entered.iter().zip(&arrivals) {
            prop_assert!(left.since(*came) <= bound + ROUNDING * path.len() as u32, "{:?} for {:?}", left.since(*came), bound);
        }
    }

    /// A class that always has packets gets its rate beside others that send far too much, to a hundredth; with `surplus = false` it
    /// gets no more.
    #[test]
    fn under_overload_a_class_gets_its_rate(wanted in wanted()) {
        let classes = set(&wanted);
        let end = Time::from_millis(10_000);
        let mut queue = reserve(&classes).unwrap();
        let source = |(i, class): (usize, &Class)| flood(i as u32, class.rate.map_or(2 * LINE.rate.0, |r| 2 * r.0), end);
        let (sent, _) = serve(&mut queue, LINE.rate, &together(classes.iter().enumerate().map(source)), end);
        for (i, class) in classes.iter().enumerate().filter(|(_, c)| c.rate.is_some()) {
            let got = through(&sent, i as u32, end) as f64 * 8.0 / 10.0;
            let rate = class.rate.unwrap().0 as f64;
            // What it had ahead at the start is once; the packet that waits for credit at the end is not counted yet.
            let once = (class.ahead.max(LINE.mtu).0 as f64) * 8.0 / 10.0;
            prop_assert!(got >= 0.99 * rate - once, "{:?} got {}", class, got);
            prop_assert!(class.surplus || got <= 1.01 * rate + once, "{:?} got {}", class, got);
        }
        let sum: u64 = (0..classes.len() as u32).map(|i| through(&sent, i, end)).sum();
        prop_assert!(sum >= LINE.rate.0 * 10 / 8 - LINE.mtu.0, "the line was idle: {}", sum);
    }

    /// What it writes into a refusal can be written into the file.
    #[test]
    fn the_numbers_of_a_refusal_fit(rates in prop::collection::vec((100_000u64..4_000_000, 1600u64..9000, 1u64..30), 2..5)) {
        let mut classes: Vec<_> = rates.iter().enumerate().map(|(i, (rate, ahead, ms))| {
            Class { delay: Some(Duration::from_millis(*ms)), ..reserved(&format!("{i}"), *rate, *ahead) }
        }).collect();
        for _ in 0..40 {
            let Some(unfit) = reserve(&classes).err() else { return Ok(()) };
            let name = unfit.advice.split('"').nth(1).unwrap();
            let i = classes.iter().position(|c| c.name == name).unwrap();
            let tried = |class: Class| {
                let part: Vec<_> = classes[..i].iter().cloned().chain([class]).collect();
                reserve(&part).is_ok()
            };
            prop_assert!(unfit.advice.contains(" cannot be kept on a line of 10Mbit/s"), "{}", unfit.advice);
            let of = |key: &str, unit: &str| {
                let (_, rest) = unfit.advice.split_once(&format!("{key} = \""))?;
                rest.split_once('"')?.0.strip_suffix(unit)?.parse::<f64>().ok()
            };
            let class = &classes[i];
            let mut fixed = None;
            if let Some(ms) = of("delay", "ms") {
                let delay = Some(Duration::from_nanos((ms * 1e6).round() as u64));
                fixed = Some(Class { delay, ..class.clone() });
                prop_assert!(tried(fixed.clone().unwrap()), "{}", unfit.advice);
                let shorter = delay.map(|d| d - Duration::from_micros(1));
                prop_assert!(!tried(Class { delay: shorter, ..class.clone() }), "{}", unfit.advice);
            }
            if let Some(kbits) = of("rate", "kbit/s").or(of("rate", "Mbit/s").map(|m| m * 1000.0)) {
                fixed = Some(Class { rate: Some(Rate((kbits * 1000.0) as u64)), ..class.clone() });
                prop_assert!(tried(fixed.clone().unwrap()), "{}", unfit.advice);
            }
            if let Some(bytes) = of("ahead", "B") {
                prop_assert!(tried(Class { ahead: Bytes(bytes as u64), ..class.clone() }), "{}", unfit.advice);
            }
            match fixed {
                Some(class) => classes[i] = class,
                None => { classes.remove(i); }
            }
            if classes.is_empty() { return Ok(()) }
        }
        prop_assert!(false, "it never came to an end");
    }
}

#[test]
fn the_bound_is_reached_to_the_nanosecond() {
    // 10 Mbit/s: a packet of 1600 bytes of the rest takes 1.28 ms, and has just begun when 4000 bytes come at once.
    let classes = [
        Class { delay: Some(Duration::from_micros(4480)), ..reserved("voice", 1_000_000, 4000) },
        Class::plain("rest"),
    ];
    let mut queue = reserve(&classes).unwrap();
    let at = Time::from_nanos(1);
    let all = together([vec![(Time::ZERO, 1, 1600); 5], vec![(at, 0, 1000); 4]]);
    let (sent, _) = serve(&mut queue, LINE.rate, &all, Time::MAX);
    assert_eq!(longest(&sent, 0), Duration::from_nanos(4_480_000 - 1));
    let shorter = Class { delay: Some(Duration::from_nanos(4_479_999)), ..classes[0].clone() };
    let unfit = reserve(&[shorter, Class::plain("rest")]).err().unwrap();
    assert_eq!(
        unfit.advice,
        "class \"voice\": 1Mbit/s, 4000B at once and 4.48ms cannot be kept on a line of 10Mbit/s with packets of 1600B, of which \
         0bit/s are reserved before it: write delay = \"4.48ms\" or longer, or ahead = \"3999B\" or less"
    );
}

#[test]
fn surplus_goes_by_priority_and_then_by_weight_and_takes_no_credit() {
    let level = |name, priority, weight| Class { priority, weight, ..Class::plain(name) };
    let classes = [
        Class { surplus: false, ..reserved("shaped", 1_000_000, 0) },
        reserved("voice", 2_000_000, 0),
        level("web", 2, 3),
        level("mail", 2, 1),
        level("rest", 8, 1000),
    ];
    let end = Time::from_millis(8000);
    // Voice alone for four seconds, but for who is shaped; then all.
    let later = |class, rate| {
        flood(class, rate, end).into_iter().filter(|(at, ..)| *at > Time::from_millis(4000)).collect()
    };
    let mut queue = reserve(&classes).unwrap();
    let all = together([
        flood(0, 8_000_000, end),
        flood(1, 12_000_000, end),
        later(2, 9_000_000),
        later(3, 9_000_000),
        later(4, 9_000_000),
    ]);
    let (sent, _) = serve(&mut queue, LINE.rate, &all, end);
    let mbits = |class, from: u64, until: u64| {
        let until_ = |ms| through(&sent, class, Time::from_millis(ms)) as f64 * 8e-3 / (until - from) as f64;
        until_(until) - until_(from)
    };
    let close = |got: f64, want: f64| assert!((got - want).abs() <= 0.03, "{got} Mbit/s, not {want}");
    close(mbits(0, 0, 4000), 1.0);
    close(mbits(1, 0, 4000), 9.0);
    // At once its reservation again: it owes nobody for the seven it had beyond it.
    close(mbits(1, 4000, 4500), 2.0);
    close(mbits(0, 4000, 8000), 1.0);
    close(mbits(1, 4000, 8000), 2.0);
    close(mbits(2, 4100, 8000), 7.0 * 0.75);
    close(mbits(3, 4100, 8000), 7.0 * 0.25);
    close(mbits(4, 4100, 8000), 0.0);
}

#[test]
fn virtual_time_that_begins_anew_changes_nothing() {
    let class = |name: &str, weight| Class { weight, ..Class::plain(name) };
    let classes = [
        reserved("one", 1_000_000, 0),
        class("two", 3),
        class("three", 1),
        Class { priority: 1, ..class("rest", 1) },
    ];
    let site = Site { line: Some(LINE), classes: classes.into() };
    let settings = Settings([("class_limit".into(), crate::registry::Value::Packets(1000))].into());
    let order = |turns: bool| {
        let mut queue = Reserve::new(&settings, &site).unwrap();
        let mut left = vec![];
        for n in 0..2000u64 {
            let now = Time::from_nanos(n * 400_000);
            let parcel = |i, flow| Parcel {
                number: 2 * n + i,
                flow,
                size: 100 + n * 7919 % 1400,
                ecn: Default::default(),
            };
            queue.enqueue(now, parcel(0, (n % 3) as u32), &mut |_, _| {});
            queue.enqueue(now, parcel(1, (n * 31 % 4) as u32), &mut |_, _| {});
            left.push(queue.dequeue(now, &mut |_, _| {}).map(|p| p.number));
            if turns && n % 7 == 0 {
                (0..LEVELS as usize).for_each(|level| queue.turn(level));
            }
        }
        left
    };
    assert_eq!(order(false), order(true));
}

#[test]
fn a_class_without_surplus_is_the_papers_rate_controller() {
    // 128 kbit/s, frames of 512 bytes, two of work-ahead: two at once, then 32 ms each, though the line is idle.
    let line = Some(Feeds { mtu: Bytes(512), ..LINE });
    let classes = [Class { surplus: false, ..reserved("shaped", 128_000, 1024) }, Class::plain("rest")];
    let mut queue = before(Site { line, classes: classes.into() }, "reserve", &[]).unwrap();
    let (sent, _) = serve(&mut queue, LINE.rate, &vec![(Time::from_millis(1000), 0, 512); 5], Time::MAX);
    let began: Vec<u64> = sent.iter().map(|s| (s.done.as_nanos() - 409_600) / 1000).collect();
    assert_eq!(began, [1_000_000, 1_000_409, 1_032_000, 1_064_000, 1_096_000]);
}

#[test]
fn classes_that_ask_for_nothing_sensible_are_refused() {
    let rest = || Class::plain("rest");
    let voice = reserved("voice", 1_000_000, 3000);
    let cases = [
        (
            vec![rest()],
            "no class has a rate, so nothing is reserved: write for example rate = \"2500kbit/s\"",
        ),
        (vec![Class { rate: Some(Rate(0)), ..rest() }], "nothing is reserved at rate zero"),
        (
            vec![voice.clone(), Class { delay: Some(Duration::from_millis(5)), ..rest() }],
            "`delay` and `ahead` are promised for a rate: write rate = \"...\", at most \"9Mbit/s\"",
        ),
        (vec![voice.clone(), Class { ahead: Bytes(1), ..rest() }], "at most \"9Mbit/s\""),
        (vec![voice.clone(), Class { surplus: false, ..rest() }], "it would never send"),
        (vec![voice.clone(), reserved("more", 9_000_001, 0)], "write rate = \"9Mbit/s\" or less"),
        (
            vec![reserved("all", 10_000_000, 0), reserved("more", 1000, 0)],
            "nothing else fits: leave its rate out",
        ),
        // Its natural delay is 3000 B at 1 Mbit/s and 1600 B at 10: 25.28 ms, in which 3160 bytes more may come.
        (vec![Class { limit: Some(Room::Bytes(6000)), ..voice }], "write limit = \"6160B\" or more"),
    ];
    for (classes, advice) in cases {
        let unfit = reserve(&classes).err().unwrap_or_else(|| panic!("taken: {classes:?}"));
        assert!(unfit.advice.contains(advice), "{}", unfit.advice);
    }
    let nowhere = before(Site { line: None, classes: vec![rest()].into() }, "reserve", &[]).err().unwrap();
    assert!(nowhere.advice.contains("put it before a line"));
}
