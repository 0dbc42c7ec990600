//! What must hold for every queue discipline of the registry, and the numbers of each.

use super::*;
use crate::packet::{Ecn, FlowId};
use crate::registry::{Settings, Value};
use crate::rng::Rng;
use crate::units::Rate;
use core::time::Duration;
use proptest::prelude::*;
use served::{flows, some_classes};
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

pub(super) mod served;
mod shares;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parcel {
    pub number: u64,
    pub flow: u32,
    pub size: u64,
    pub ecn: Ecn,
}

impl Parcel {
    /// As it came, but for a mark where one is possible.
    fn came_as(&self, arrival: Option<&Parcel>) -> bool {
        arrival.is_some_and(|a| {
            let markable = a.ecn != Ecn::NotEct && self.ecn == Ecn::Ce;
            (self.number, self.flow, self.size) == (a.number, a.flow, a.size)
                && (self.ecn == a.ecn || markable)
        })
    }
}

impl Packet for Parcel {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }
    fn flow(&self) -> FlowId {
        FlowId(self.flow)
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn != Ecn::NotEct;
        if capable {
            self.ecn = Ecn::Ce;
        }
        capable
    }
}

pub(super) type Boxed = Box<dyn Qdisc<Parcel>>;

pub(super) fn build(
    name: &str,
    values: &[(&str, Value)],
    inner: Option<Boxed>,
    seed: u64,
) -> Result<Boxed, Unfit> {
    let entry = REGISTRY.iter().find(|e| e.name == name).unwrap();
    let mut settings = Settings::default();
    for parameter in entry.parameters {
        let given = values.iter().find(|(n, _)| *n == parameter.name).map(|(_, v)| v.clone());
        settings.0.insert(parameter.name.into(), given.unwrap_or_else(|| usual(parameter)));
    }
    let site = if ["priority", "reserve"].contains(&name) { some_classes() } else { flows() };
    by_name(name, &settings, Context { inner, rng: Rng::new(seed, 0), site }).expect("every entry is built")
}

/// A value that any parameter of this kind can take.
fn usual(parameter: &Parameter) -> Value {
    match (parameter.name, parameter.kind) {
        ("burst", _) => Value::Bytes(Bytes(1514)),
        ("min", _) => Value::Bytes(Bytes(3000)),
        ("ecn", _) => Value::Flag(true),
        ("max", _) => Value::Bytes(Bytes(9000)),
        (_, Kind::Limit | Kind::Bytes) => Value::Bytes(Bytes(20_000)),
        (_, Kind::Rate) => Value::Rate(Rate(1_000_000)),
        (_, Kind::Time) => Value::Time(Duration::from_millis(10)),
        (_, Kind::Ratio) => Value::Ratio(0.1),
        (_, Kind::Count) => Value::Count(4),
        (_, Kind::Flag) => Value::Flag(false),
        (_, Kind::List) => Value::List([2, 3, 7].into()),
        (_, Kind::Word(words)) => Value::Word(words[0].into()),
    }
}

fn fifo(bytes: u64) -> Boxed {
    build("fifo", &[("limit", Value::Bytes(Bytes(bytes)))], None, 0).unwrap()
}

/// A discipline under observation: what went in, what came out, what was dropped.
pub(super) struct Watched {
    pub qdisc: Boxed,
    pub now: Time,
    arrived: u64,
    waiting: BTreeMap<u64, Parcel>,
    pub left: Vec<(Time, Parcel)>,
    pub dropped: Vec<(Parcel, DropReason)>,
    /// Of what arrives.
    pub ecn: Ecn,
    /// Whether packets may overtake each other.
    reorders: bool,
}

impl Watched {
    pub fn new(qdisc: Boxed) -> Watched {
        Watched {
            qdisc,
            now: Time::ZERO,
            arrived: 0,
            waiting: BTreeMap::new(),
            left: Vec::new(),
            dropped: Vec::new(),
            ecn: Ecn::NotEct,
            reorders: false,
        }
    }

    pub fn enqueue(&mut self, flow: u32, size: u64) {
        self.arrived += 1;
        let parcel = Parcel { number: self.arrived, flow, size, ecn: self.ecn };
        self.waiting.insert(parcel.number, parcel.clone());
        let (waiting, dropped) = (&mut self.waiting, &mut self.dropped);
        self.qdisc.enqueue(self.now, parcel, &mut |p, why| {
            assert!(p.came_as(waiting.remove(&p.number).as_ref()), "dropped, though it was not here: {p:?}");
            dropped.push((p, why));
        });
        self.check();
    }

    pub fn dequeue(&mut self) -> Option<Parcel> {
        let (waiting, dropped) = (&mut self.waiting, &mut self.dropped);
        let mut victims = Vec::new();
        let got = self.qdisc.dequeue(self.now, &mut |p, why| {
            assert!(p.came_as(waiting.remove(&p.number).as_ref()), "dropped, though it was not here: {p:?}");
            victims.push(p.number);
            dropped.push((p, why));
        });
        if let Some(parcel) = &got {
            let arrival = self.waiting.remove(&parcel.number);
            assert!(parcel.came_as(arrival.as_ref()), "{parcel:?} delivered, but {arrival:?} was here");
            let ahead = self.reorders || victims.iter().all(|v| *v < parcel.number);
            assert!(ahead, "a victim was behind the packet delivered");
            let before = self.left.iter().rev().find(|(_, p)| p.flow == parcel.flow);
            assert!(
                self.reorders || before.is_none_or(|(_, p)| p.number < parcel.number),
                "flow {} out of order",
                parcel.flow
            );
            self.left.push((self.now, parcel.clone()));
        }
        self.check();
        got
    }

    /// In = out + dropped + backlog, in packets and bytes; asleep only if empty.
    fn check(&self) {
        assert_eq!(
            self.arrived,
            (self.left.len() + self.dropped.len()) as u64 + self.qdisc.backlog().packets
        );
        let bytes = self.waiting.values().map(|p| p.size).sum();
        assert_eq!(self.qdisc.backlog(), Backlog { packets: self.waiting.len() as u64, bytes: Bytes(bytes) });
        assert_eq!(
            self.qdisc.ready_at().is_none(),
            self.waiting.is_empty(),
            "asleep with a backlog, or awake without"
        );
    }

    /// Takes out what may leave until `until`, asking exactly when told to.
    pub fn drain(&mut self, until: Time) {
        while let Some(at) = self.qdisc.ready_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            if self.dequeue().is_none() {
                let next = self.qdisc.ready_at();
                assert!(
                    next.is_none_or(|t| t > self.now),
                    "it says now, and gives nothing: {next:?} at {:?}",
                    self.now
                );
            }
        }
        self.now = self.now.max(until);
    }
}

/// So many packets leave now.
pub(super) fn leave(watched: &mut Watched, packets: usize) {
    for _ in 0..packets {
        assert!(watched.dequeue().is_some(), "nothing may leave");
    }
}

#[test]
fn every_entry_of_the_registry_is_built_by_its_name_and_no_other() {
    for entry in REGISTRY {
        assert!(build(entry.name, &[], None, 1).is_ok(), "{}", entry.name);
        let positional = entry.parameters.first();
        assert!(positional.is_some(), "{}: the first parameter may be given positionally", entry.name);
    }
    let context = Context { inner: None, rng: Rng::new(0, 0), site: flows() };
    assert!(by_name::<Parcel>("fiffo", &Settings::default(), context).is_none());
    let mut names: Vec<_> = REGISTRY.iter().map(|e| e.name).collect();
    names.dedup();
    assert_eq!(names.len(), REGISTRY.len());
}

#[test]
fn every_reason_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), DropReason::ALL.len());
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u32, u64),
    Dequeue,
    Wait(u64),
    Ask,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..4, 20u64..1600).prop_map(|(flow, size)| Step::Enqueue(flow, size)),
        2 => Just(Step::Dequeue),
        2 => (0u64..20_000_000).prop_map(Step::Wait),
        2 => Just(Step::Ask),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every discipline, alone and around every other: in = out + dropped + backlog after every call, flows stay in order
    /// (unless it is there to reorder them), nothing is marked that cannot be, `ready_at` keeps its word, and in the end
    /// nothing remains.
    #[test]
    fn nothing_is_lost_made_or_overtaken(steps in steps(), seed: u64) {
        let outer = REGISTRY.iter();
        let pairs = outer.flat_map(|o| REGISTRY.iter().map(move |i| (o, o.contains.then_some(i))));
        for (outer, inner) in pairs {
            let reorders = [Some(outer), inner].into_iter().flatten().any(|e| e.name == "reorder");
            let inner = inner.map(|i| build(i.name, &[], None, seed ^ 1).unwrap());
            let mut watched = Watched::new(build(outer.name, &[], inner, seed).unwrap());
            watched.reorders = reorders;
            for step in &steps {
                match *step {
                    Step::Enqueue(flow, size) => {
                        watched.ecn = if flow % 2 == 0 { Ecn::NotEct } else { Ecn::Ect0 };
                        watched.enqueue(flow, size)
                    }
                    Step::Dequeue => drop(watched.dequeue()),
                    Step::Wait(nanos) => watched.now += Duration::from_nanos(nanos),
                    Step::Ask => watched.drain(watched.now),
                }
            }
            watched.drain(watched.now + Duration::from_secs(3600));
            prop_assert!(watched.waiting.is_empty(), "{} kept {:?}", outer.name, watched.waiting);
        }
    }

    /// A token bucket lets no interval pass more than rate * t + burst, and loses no time either.
    #[test]
    fn a_shaper_never_exceeds_its_rate_and_reaches_it(
        rate in 8_000u64..2_000_000_000, burst in 1514u64..50_000, sizes in proptest::collection::vec(40u64..1514, 2..200), idle in 0u64..1_000_000_000,
    ) {
        let values = [("rate", Value::Rate(Rate(rate))), ("burst", Value::Bytes(Bytes(burst)))];
        let mut watched = Watched::new(build("shaper", &values, None, 0).unwrap());
        watched.now = Time::from_nanos(idle);
        sizes.iter().for_each(|size| watched.enqueue(0, *size));
        watched.drain(Time::from_millis(1 << 40));
        prop_assert_eq!(watched.left.len(), sizes.len());
        let allowed = |since: Time, t: Time| burst + Rate(rate).bytes_in(t.since(since)).0;
        for first in 0..sizes.len() {
            let mut passed = 0;
            for (t, parcel) in &watched.left[first..] {
                passed += parcel.size;
                prop_assert!(passed <= allowed(watched.left[first].0, *t), "{} bytes from packet {}", passed, first);
            }
        }
        // Backlogged throughout: what has passed is within one packet of what the bucket allows.
        let mut passed = 0;
        for (t, parcel) in &watched.left {
            passed += parcel.size;
            let behind = allowed(Time::from_nanos(idle), *t) - passed;
            prop_assert!(*t == Time::from_nanos(idle) || behind <= 1 + rate / 8_000_000_000, "{} bytes behind", behind);
        }
    }
}

#[test]
fn a_fifo_counts_its_limit_in_bytes_or_packets() {
    let mut by_bytes = Watched::new(fifo(3000));
    [1500, 1000, 501, 500].into_iter().for_each(|size| by_bytes.enqueue(0, size));
    assert_eq!(
        by_bytes.dropped,
        [(Parcel { number: 3, flow: 0, size: 501, ecn: Ecn::NotEct }, DropReason::Full)],
        "used + size > limit"
    );
    assert_eq!(by_bytes.qdisc.backlog(), Backlog { packets: 3, bytes: Bytes(3000) });

    let mut by_packets = Watched::new(build("fifo", &[("limit", Value::Packets(2))], None, 0).unwrap());
    [9000, 40, 40].into_iter().for_each(|size| by_packets.enqueue(0, size));
    assert_eq!(by_packets.dropped.len(), 1);
    by_packets.dequeue();
    by_packets.enqueue(0, 40);
    assert_eq!(by_packets.dropped.len(), 1, "there is room again");
}

#[test]
fn a_delay_line_delays_by_exactly_its_time() {
    let mut line = Watched::new(build("delay", &[("limit", Value::Packets(100))], None, 0).unwrap());
    let came = [0, 1, 1, 9_999_999, 10_000_000, 50_000_000].map(Time::from_nanos);
    for at in came {
        line.drain(at);
        line.enqueue(0, 100);
    }
    line.now = Time::from_nanos(59_999_999);
    assert!(line.dequeue().is_none(), "not a nanosecond early");
    line.drain(Time::from_millis(1000));
    let left: Vec<Time> = line.left.iter().map(|(t, _)| *t).collect();
    assert_eq!(left, came.map(|t| t + Duration::from_millis(10)));
}

#[test]
fn a_full_delay_line_drops_what_arrives() {
    for limit in [Value::Packets(2), Value::Bytes(Bytes(250))] {
        let mut line = Watched::new(build("delay", &[("limit", limit)], None, 0).unwrap());
        [100, 100, 100].into_iter().for_each(|size| line.enqueue(0, size));
        assert_eq!(
            (line.dropped.len(), line.dropped[0].0.number, line.dropped[0].1),
            (1, 3, DropReason::Full)
        );
    }
}

#[test]
fn a_shaper_spaces_equal_packets_evenly() {
    // 1000 bytes at 8 Mbit/s are 1 ms; the bucket holds one packet.
    let values = [("rate", Value::Rate(Rate(8_000_000))), ("burst", Value::Bytes(Bytes(1000)))];
    let mut shaper = Watched::new(build("shaper", &values, None, 0).unwrap());
    (0..5).for_each(|_| shaper.enqueue(0, 1000));
    shaper.drain(Time::from_millis(100));
    let left: Vec<Time> = shaper.left.iter().map(|(t, _)| *t).collect();
    assert_eq!(left, [0, 1, 2, 3, 4].map(Time::from_millis));
}

#[test]
fn what_exceeds_the_bucket_never_waits_and_what_the_inner_queue_refuses_is_dropped() {
    let values = [("rate", Value::Rate(Rate(8_000))), ("burst", Value::Bytes(Bytes(1000)))];
    let mut shaper = Watched::new(build("shaper", &values, Some(fifo(1500)), 0).unwrap());
    [1001, 1000, 500, 1].into_iter().for_each(|size| shaper.enqueue(0, size));
    let reasons: Vec<_> = shaper.dropped.iter().map(|(p, why)| (p.number, *why)).collect();
    assert_eq!(reasons, [(1, DropReason::NeverFits), (4, DropReason::Full)]);
}

#[test]
fn listed_packets_are_lost_and_no_others() {
    let values = [("probability", Value::Ratio(0.0)), ("packets", Value::List([7, 2, 3, 3, 100].into()))];
    let mut loss = Watched::new(build("loss", &values, None, 0).unwrap());
    (0..20).for_each(|_| loss.enqueue(0, 100));
    let lost: Vec<_> = loss.dropped.iter().map(|(p, why)| (p.number, *why)).collect();
    assert_eq!(lost, [2, 3, 7].map(|n| (n, DropReason::Listed)), "in any order, twice or beyond the end");
}

#[test]
fn random_loss_has_its_probability_within_4_sigma_and_repeats_with_its_seed() {
    let run = |p: f64, seed| {
        let values = [("probability", Value::Ratio(p)), ("packets", Value::List([].into()))];
        let mut qdisc = build("loss", &values, None, seed).unwrap();
        let mut lost = Vec::new();
        for number in 0..100_000 {
            let parcel = Parcel { number, flow: 0, size: 100, ecn: Ecn::NotEct };
            qdisc.enqueue(Time::ZERO, parcel, &mut |p, why| {
                assert_eq!(why, DropReason::RandomLoss);
                lost.push(p.number);
            });
            qdisc.dequeue(Time::ZERO, &mut |_, _| unreachable!());
        }
        lost
    };
    for (i, p) in [0.0, 0.001, 0.1, 0.5, 1.0].into_iter().enumerate() {
        let lost = run(p, i as u64);
        let sigma = libm::sqrt(100_000.0 * p * (1.0 - p));
        let off = (lost.len() as f64 - 100_000.0 * p).abs();
        assert!(off <= 4.0 * sigma, "p = {p}: {} lost", lost.len());
    }
    assert_eq!(run(0.01, 5), run(0.01, 5));
    assert_ne!(run(0.01, 5), run(0.01, 6));
    // Independent of each other: after a loss the next packet is lost as often as any.
    let lost = run(0.1, 9);
    let pairs = lost.windows(2).filter(|w| w[1] == w[0] + 1).count() as f64;
    let expected = lost.len() as f64 * 0.1;
    assert!((pairs - expected).abs() < 4.0 * libm::sqrt(expected), "{pairs} pairs, {expected} expected");
}

/// Packets that arrive one each millisecond; when each left, by its number.
fn passed(watched: &mut Watched, packets: u64) -> Vec<(u64, Time)> {
    for i in 0..packets {
        watched.drain(Time::from_millis(i));
        watched.enqueue(0, 100);
    }
    watched.drain(Time::from_millis(1000));
    watched.left.iter().map(|(t, p)| (p.number, *t)).collect()
}

fn reorder(packets: &[u64], by: Duration, inner: Option<Boxed>) -> Watched {
    let listed = [
        ("probability", Value::Ratio(0.0)),
        ("packets", Value::List(packets.into())),
        ("by", Value::Time(by)),
    ];
    let mut watched = Watched::new(build("reorder", &listed, inner, 0).unwrap());
    watched.reorders = true;
    watched
}

#[test]
fn a_packet_held_back_lets_others_pass_for_exactly_its_time() {
    let left = passed(&mut reorder(&[2, 5], Duration::from_micros(2500), None), 5);
    let micros = |n: u64| Time::from_nanos(1000 * n);
    // Packet 2 came at 1 ms, packet 5 at 4 ms with nobody behind it.
    let expected =
        [(1, micros(0)), (3, micros(2000)), (4, micros(3000)), (2, micros(3500)), (5, micros(6500))];
    assert_eq!(left, expected);
}

#[test]
fn what_was_held_back_joins_the_inner_queue_when_its_time_comes_and_may_find_it_full() {
    let delayed = build("delay", &[("limit", Value::Packets(9))], None, 0).unwrap();
    let mut late = reorder(&[1], Duration::from_millis(2), Some(delayed));
    late.enqueue(0, 100);
    late.now = Time::from_millis(50); // the host looks late
    assert_eq!(late.dequeue().map(|p| p.number), Some(1), "2 ms aside and 10 ms in the inner line are over");

    let mut full = reorder(&[1], Duration::from_millis(2), Some(fifo(150)));
    [100, 100].into_iter().for_each(|size| full.enqueue(0, size));
    assert_eq!(full.qdisc.backlog(), Backlog { packets: 2, bytes: Bytes(200) });
    full.now = Time::from_millis(2);
    full.enqueue(0, 60);
    let victims: Vec<_> = full.dropped.iter().map(|(p, why)| (p.number, *why)).collect();
    assert_eq!(victims, [(1, DropReason::Full), (3, DropReason::Full)]);
}

fn trace(at: &[u64], inner: Option<Boxed>) -> Watched {
    Watched::new(build("trace", &[("at", Value::List(at.into()))], inner, 0).unwrap())
}

/// When the packets of these sizes, all there from the start, leave, in milliseconds.
fn leaves(at: &[u64], sizes: &[u64]) -> Vec<u64> {
    let mut watched = trace(at, None);
    sizes.iter().for_each(|size| watched.enqueue(0, *size));
    watched.drain(Time::from_millis(1000));
    watched.left.iter().map(|(t, _)| t.as_nanos() / 1_000_000).collect()
}

#[test]
fn a_trace_passes_one_full_packet_at_each_of_its_times_and_repeats_after_the_last() {
    assert_eq!(leaves(&[1, 1, 4, 10], &[1500; 9]), [1, 1, 4, 10, 11, 11, 14, 20, 21]);
    assert_eq!(leaves(&[1], &[1500; 4]), [1, 2, 3, 4], "12 Mbit/s of full packets");
    assert_eq!(leaves(&[0, 5], &[1500; 4]), [5, 5, 10, 10], "the end of one turn is the start of the next");
}

#[test]
fn small_packets_share_an_opportunity_and_a_large_one_takes_several() {
    // 54 bytes each with their framing: 27 make 1458, and the 28th goes on in the next.
    let small = leaves(&[1], &[50; 60]);
    assert_eq!(small.iter().filter(|t| **t == 1).count(), 27);
    assert_eq!(small.iter().filter(|t| **t == 2).count(), 28, "2 * 1504 = 55 * 54 + 38");
    // 3004 of 3008 bytes, then 4 + 1500 of 1504.
    assert_eq!(leaves(&[1], &[3000, 1496, 1500]), [2, 2 + 1, 4]);
    assert_eq!(leaves(&[7], &[1504]), [14], "four bytes too long for one");
}

#[test]
fn what_is_not_waiting_wastes_an_opportunity() {
    let mut idle = trace(&[1, 2], None);
    idle.now = Time::from_nanos(5_500_000);
    [700, 700].into_iter().for_each(|size| idle.enqueue(0, size));
    idle.drain(Time::from_millis(6));
    assert_eq!(idle.left.len(), 2, "1408 of 1504 bytes");
    idle.enqueue(0, 50);
    assert_eq!(idle.dequeue(), None, "it came at the very instant, too late for the rest");
    idle.drain(Time::from_millis(100));
    assert_eq!(idle.left[2].0, Time::from_millis(7));
}

#[test]
fn a_host_that_asks_late_finds_what_the_opportunities_carried_and_no_more() {
    let mut late = trace(&[1], None);
    (0..3).for_each(|_| late.enqueue(0, 1500));
    late.now = Time::from_nanos(2_500_000);
    late.enqueue(0, 1500);
    late.now = Time::from_nanos(2_600_000);
    let got: Vec<_> = std::iter::from_fn(|| late.dequeue()).map(|p| p.number).collect();
    assert_eq!(got, [1, 2]);
    // The inner queue keeps its limit until an opportunity takes a packet out.
    let mut full = trace(&[1], Some(fifo(3000)));
    (0..3).for_each(|_| full.enqueue(0, 1500));
    assert_eq!(full.dropped.len(), 1);
    // In the inner line a packet is not there before it has crossed it.
    let line = build("delay", &[("limit", Value::Packets(9))], None, 0).unwrap();
    let mut behind = trace(&[4], Some(line));
    behind.enqueue(0, 50);
    behind.now = Time::from_millis(3);
    behind.enqueue(0, 50);
    behind.drain(Time::from_millis(100));
    let left: Vec<u64> = behind.left.iter().map(|(t, _)| t.as_nanos() / 1_000_000).collect();
    assert_eq!(left, [12, 16], "10 ms, and the next multiple of 4; nobody keeps the rest of an opportunity");
}

#[test]
fn settings_that_cannot_be_are_refused_with_advice() {
    let refused = [
        ("fifo", ("limit", Value::Bytes(Bytes(0)))),
        ("fifo", ("limit", Value::Packets(0))),
        ("shaper", ("rate", Value::Rate(Rate(0)))),
        ("shaper", ("burst", Value::Bytes(Bytes(0)))),
        ("loss", ("probability", Value::Ratio(1.01))),
        ("loss", ("probability", Value::Ratio(f64::NAN))),
        ("loss", ("packets", Value::List([0, 1].into()))),
        ("delay", ("limit", Value::Packets(0))),
        ("red", ("limit", Value::Packets(0))),
        ("red", ("min", Value::Packets(5))),
        ("red", ("max", Value::Bytes(Bytes(3000)))),
        ("red", ("rate", Value::Rate(Rate(0)))),
        ("red", ("mean_packet", Value::Bytes(Bytes(0)))),
        ("red", ("weight", Value::Ratio(1.1))),
        ("red", ("max_p", Value::Ratio(-0.1))),
        ("red", ("mark_limit", Value::Ratio(2.0))),
        ("codel", ("limit", Value::Packets(0))),
        ("codel", ("target", Value::Time(Duration::ZERO))),
        ("codel", ("interval", Value::Time(Duration::ZERO))),
        ("reorder", ("probability", Value::Ratio(-0.1))),
        ("reorder", ("packets", Value::List([0].into()))),
        ("reorder", ("by", Value::Time(Duration::ZERO))),
        ("trace", ("at", Value::List([].into()))),
        ("trace", ("at", Value::List([0].into()))),
        ("trace", ("at", Value::List([0, 3, 2].into()))),
        ("trace", ("at", Value::List([u64::MAX].into()))),
    ];
    for (name, value) in refused {
        let unfit = build(name, core::slice::from_ref(&value), None, 0).err();
        let unfit = unfit.unwrap_or_else(|| panic!("{name} took {value:?}"));
        assert_eq!(unfit.parameter, value.0);
        assert!(unfit.advice.len() > 20, "{}", unfit.advice);
    }
}

#[test]
fn a_fifo_is_first_in_first_out_over_all_flows() {
    let mut queue = Watched::new(fifo(1 << 20));
    let mut model = VecDeque::new();
    for i in 0..100 {
        queue.enqueue(i % 3, 100 + i as u64);
        model.push_back(i as u64 + 1);
        if i % 4 == 0 {
            assert_eq!(queue.dequeue().map(|p| p.number), model.pop_front());
        }
    }
}
