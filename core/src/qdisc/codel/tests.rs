//! CoDel in the numbers of RFC 8289 and of Linux: when the first packet is dropped, when the next ones are, and who is marked.

use super::super::tests::{Watched, build, leave};
use super::*;
use crate::registry::Value;
use std::vec::Vec;

const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

fn codel(values: &[(&str, Value)]) -> Watched {
    let mut all = std::vec![
        ("limit", Value::Packets(100_000)),
        ("target", Value::Time(TARGET)),
        ("interval", Value::Time(INTERVAL)),
        ("ecn", Value::Flag(false)),
        ("ce_threshold", Value::Time(Duration::ZERO)),
    ];
    all.retain(|(name, _)| values.iter().all(|(given, _)| given != name));
    all.extend_from_slice(values);
    Watched::new(build("codel", &all, None, 0).unwrap())
}

/// All packets are there at 0; one is asked for each `step` until `millis`. When packets were dropped, in milliseconds.
fn drops(watched: &mut Watched, step: Duration, millis: u64) -> Vec<f64> {
    let mut times = Vec::new();
    while watched.now < Time::from_millis(millis) {
        let before = watched.dropped.len();
        watched.dequeue().expect("it still holds packets");
        let new = watched.dropped.len() - before;
        times.extend(core::iter::repeat_n(watched.now.as_secs_f64() * 1e3, new));
        watched.now += step;
    }
    times
}

fn full(ecn: Ecn, packets: u64, values: &[(&str, Value)]) -> Watched {
    let mut watched = codel(values);
    watched.ecn = ecn;
    (0..packets).for_each(|_| watched.enqueue(0, 1000));
    watched
}

#[test]
fn the_first_packet_is_dropped_when_all_have_waited_too_long_for_an_interval() {
    let mut queue = full(Ecn::NotEct, 3000, &[]);
    let times = drops(&mut queue, Duration::from_millis(1), 150);
    assert_eq!(times, [105.0], "above target at 5 ms, an interval later the first");
    assert_eq!(queue.dropped[0].0.number, 106, "at the head: one left at each of 0 to 104 ms");
    assert_eq!(queue.dropped[0].1, DropReason::Early);
}

/// 1/sqrt(n) after one Newton step each from 1/sqrt(1) = 1 on: x (3 - n x^2) / 2.
fn newton(counts: u32) -> Vec<f64> {
    let step = |x: &mut f64, n: u32| {
        if n > 1 {
            *x *= (3.0 - n as f64 * *x * *x) / 2.0;
        }
        Some(*x)
    };
    (1..=counts).scan(1.0, step).collect()
}

#[test]
fn drops_follow_each_other_at_interval_by_the_root_of_their_count() {
    let mut queue = full(Ecn::NotEct, 8_200, &[]);
    let times = drops(&mut queue, Duration::from_micros(250), 2005);
    // By hand, after the first at 105 ms: 100 ms; 100/2 (Newton's long step; the root would be 70.7); 0.5 (3 - 3/4) / 2 =
    // 0.5625, so 56.25 ms; 0.5625 (3 - 4 x 0.3164) / 2 = 0.4878; 0.4415. Packets are asked for every 0.25 ms.
    for (got, want) in times.iter().zip([105.0, 205.0, 255.0, 311.25, 360.03, 404.18]) {
        assert!((0.0..0.26).contains(&(got - want + 0.005)), "{got}, not {want}: {times:?}");
    }
    // And all of them, with the same steps in floating point; in 16 bits each may be up to 4/65536 of 100 ms early.
    let mut due = 105.0;
    for (i, part) in newton(times.len() as u32).into_iter().enumerate() {
        let early = 0.0061 * i as f64;
        assert!((due - early..due + 0.26).contains(&times[i]), "drop {i} at {}, not {due}", times[i]);
        due += 100.0 * part;
    }
    // RFC 8289: n drops take the sum of 100/sqrt(i), i < n, about 200 sqrt(n) ms: n = 90 or so by 2 s.
    let exact = |n: usize| (1..n).map(|i| 100.0 / libm::sqrt(i as f64)).sum::<f64>() + 105.0;
    assert!(times.len() > 80, "{}", times.len());
    let late = exact(times.len()) - times[times.len() - 1];
    assert!((0.0..30.0).contains(&late), "{late} ms before the RFC's, of which 20.7 in the second step");
}

#[test]
fn the_fixed_point_root_is_linuxs() {
    let params = Params { target: TARGET, interval: INTERVAL, ecn: false, ce_threshold: None };
    let mut law = CodelLaw::new(params);
    law.enter(Time::ZERO);
    assert_eq!((law.vars.count, law.vars.inverse_root), (1, 65_535));
    // 100 ms x 65535 / 65536, rounded down.
    assert_eq!(law.vars.drop_next, Time::from_nanos(99_998_474));
    let mut worst = 0.0f64;
    for (count, part) in (1..=10_000).zip(newton(10_000)) {
        if count > 1 {
            law.vars.count = count;
            law.newton_step();
        }
        let got = law.vars.inverse_root as f64 / 65_536.0;
        assert!((got - part).abs() < 4.0 / 65_536.0, "{count}: {got}, not {part}");
        if count >= 7 {
            worst =
                worst.max(1.0 - got * libm::sqrt(count as f64) - 4.0 / 65_536.0 * libm::sqrt(count as f64));
        }
    }
    assert!(worst < 0.01, "{worst}");
    law.vars.count = 2;
    law.vars.inverse_root = 65_535;
    law.newton_step();
    // 0xffff0000^2 >> 32 = 0xfffe0001; (3 << 32) - 2 x that = 0x10003fffe; >> 2, x 0xffff0000, >> 31, >> 16: 32769.
    assert_eq!(law.vars.inverse_root, 32_769);
}

#[test]
fn short_queues_and_short_waits_are_let_be() {
    // Each packet waits 4.999999 ms among many, for 10 s.
    let mut quick = codel(&[]);
    let wait = TARGET - Duration::from_nanos(1);
    for i in 0..10_000 {
        let came = Time::from_millis(i);
        while quick.left.len() + 5 <= i as usize {
            quick.now = Time::from_millis(quick.left.len() as u64) + wait;
            quick.dequeue();
        }
        quick.now = came;
        quick.enqueue(0, 1000);
    }
    assert!(quick.dropped.is_empty(), "{}", quick.dropped.len());
    // One packet left behind: even if both have waited for seconds.
    let mut two = codel(&[]);
    for i in 0..100 {
        (two.now, two.ecn) = (Time::from_millis(2000 * i), Ecn::Ect0);
        (0..2).for_each(|_| two.enqueue(0, 1500));
        two.now += Duration::from_millis(1500);
        leave(&mut two, 2);
    }
    assert_eq!((two.left.len(), two.dropped.len()), (200, 0));
    // A third one would make it a standing queue.
    let mut three = full(Ecn::NotEct, 3, &[]);
    three.now = Time::from_millis(6);
    three.dequeue();
    three.enqueue(0, 1000);
    three.now = Time::from_millis(107);
    assert_eq!(three.dequeue().map(|p| p.number), Some(3), "packet 2 waited with more than one behind it");
}

#[test]
fn a_packet_that_waited_less_ends_the_dropping_state() {
    let mut queue = full(Ecn::NotEct, 200, &[]);
    assert_eq!(drops(&mut queue, Duration::from_millis(1), 180).len(), 1);
    (0..100).for_each(|_| queue.enqueue(0, 1000)); // at 180 ms; 19 of the old ones are left
    queue.now = Time::from_millis(183);
    leave(&mut queue, 19);
    assert_eq!((queue.left.len(), queue.dropped.len()), (199, 1));
    queue.dequeue(); // the first of the new ones, after 3 ms
    queue.now = Time::from_millis(250); // past drop_next, and too long for all that are left
    queue.dequeue();
    assert_eq!(queue.dropped.len(), 1, "a new interval has begun");
    queue.now = Time::from_millis(351);
    queue.dequeue();
    assert_eq!(queue.dropped.len(), 2);
}

#[test]
fn a_dropping_state_soon_after_another_begins_at_its_rate() {
    let again = |pause: Duration| {
        let params = Params { target: TARGET, interval: INTERVAL, ecn: false, ce_threshold: None };
        let mut law = CodelLaw::new(params);
        law.enter(Time::ZERO);
        for count in 2..=10 {
            law.vars.count = count;
            law.newton_step();
        }
        law.vars.dropping = false;
        let due = law.vars.drop_next;
        law.enter(due + pause);
        (law.vars.count, (law.vars.drop_next.since(due + pause)).as_secs_f64())
    };
    // Ten packets were struck, nine of them since it was entered at a count of one.
    let (count, next) = again(INTERVAL * 16 - Duration::from_nanos(1));
    assert_eq!(count, 9);
    assert!((next - 0.1 / 3.0).abs() < 0.001, "{next}");
    let (count, next) = again(INTERVAL * 16);
    assert_eq!(count, 1);
    assert!((next - 0.1).abs() < 0.00001, "{next}");
}

#[test]
fn with_ecn_the_packet_that_would_be_dropped_is_delivered_with_a_mark() {
    let marks = |ecn, values: &[(&str, Value)]| {
        let mut queue = full(ecn, 3000, values);
        let dropped = drops(&mut queue, Duration::from_millis(1), 400);
        let at = |(t, p): &(Time, super::super::tests::Parcel)| {
            (p.ecn == Ecn::Ce).then(|| t.as_nanos() / 1_000_000)
        };
        (dropped, queue.left.iter().filter_map(at).collect::<Vec<_>>())
    };
    let on = [("ecn", Value::Flag(true))];
    let times = [105, 205, 255, 312, 361];
    assert_eq!(marks(Ecn::Ect0, &on), (Vec::new(), times.to_vec()), "one mark at each instant");
    assert_eq!(marks(Ecn::NotEct, &on), (times.map(|t| t as f64).to_vec(), Vec::new()));
    assert_eq!(marks(Ecn::Ect0, &[]), (times.map(|t| t as f64).to_vec(), Vec::new()));
}

#[test]
fn beyond_ce_threshold_every_capable_packet_is_marked() {
    let values = [("ce_threshold", Value::Time(Duration::from_millis(3)))];
    let mut queue = full(Ecn::Ect1, 100, &values);
    drops(&mut queue, Duration::from_millis(1), 10);
    let marked: Vec<bool> = queue.left.iter().map(|(_, p)| p.ecn == Ecn::Ce).collect();
    assert_eq!(marked, [[false; 4].as_slice(), &[true; 6]].concat(), "after 0, 1, 2, 3 ms not, then always");
}

#[test]
fn a_host_that_asks_late_makes_up_for_drops_but_lets_the_last_two_be() {
    let mut queue = full(Ecn::NotEct, 50, &[]);
    drops(&mut queue, Duration::from_millis(1), 6);
    queue.now = Time::from_millis(200);
    assert!(queue.dequeue().is_some());
    queue.now = Time::from_millis(60_000); // hundreds of drops are due
    assert_eq!(queue.dequeue().map(|p| p.number), Some(49), "one packet behind it");
    // 1 to 6 left in time, 7 was dropped for 8, and now 9 to 48.
    assert_eq!((queue.left.len(), queue.dropped.len()), (8, 41));
    assert_eq!(queue.dequeue().map(|p| p.number), Some(50));
}

#[test]
fn what_it_shows_is_its_state() {
    let mut queue = full(Ecn::NotEct, 3000, &[]);
    drops(&mut queue, Duration::from_millis(1), 261);
    let mut shown = Vec::new();
    queue.qdisc.inspect(&mut |name, value| shown.push((name, value)));
    assert_eq!(shown, [("sojourn", 0.26), ("drop_count", 3.0)]);
}
