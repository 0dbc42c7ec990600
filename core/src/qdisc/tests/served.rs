//! A line that sends what a discipline gives it, to see when each packet is through.

use super::{Boxed, Parcel, usual};
use crate::ackwin::Room;
use crate::packet::{Ecn, Packet};
use crate::qdisc::class::{Class, Feeds, Site};
use crate::qdisc::{Context, DropReason, REGISTRY, by_name};
use crate::registry::{Kind, Parameter, Settings, Unfit, Value};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use core::time::Duration;
use std::vec::Vec;

/// Before a line of 10 Mbit/s.
pub const LINE: Feeds = Feeds { rate: Rate(10_000_000), mtu: Bytes(1600) };

/// Without classes.
pub fn flows() -> Site {
    Site { line: Some(LINE), classes: [].into() }
}

/// A line with a class of each kind: reserved with and without surplus, and the rest, with little room.
pub fn some_classes() -> Site {
    let reserved =
        |name, rate| Class { rate: Some(Rate(rate)), ahead: Bytes(3000), priority: 1, ..Class::plain(name) };
    let classes = [
        Class { delay: Some(Duration::from_millis(20)), ..reserved("voice", 1_000_000) },
        Class { surplus: false, limit: Some(Room::Bytes(20_000)), ..reserved("shaped", 500_000) },
        Class { weight: 3, priority: 2, limit: Some(Room::Packets(3)), ..Class::plain("web") },
        Class::plain("rest"),
    ];
    Site { line: Some(LINE), classes: classes.into() }
}

/// A discipline with these settings before this line.
pub fn before(site: Site, name: &str, values: &[(&str, Value)]) -> Result<Boxed, Unfit> {
    let entry = REGISTRY.iter().find(|e| e.name == name).unwrap();
    let default = |p: &Parameter| match p.kind {
        Kind::Limit => Value::Packets(1000),
        _ => usual(p),
    };
    let value =
        |p: &Parameter| values.iter().find(|(n, _)| *n == p.name).map_or_else(|| default(p), |v| v.1.clone());
    let settings = Settings(entry.parameters.iter().map(|p| (p.name.into(), value(p))).collect());
    by_name(name, &settings, Context { inner: None, rng: Rng::new(0, 0), site })
        .expect("every entry is built")
}

/// A packet on its way: its class, its size, when it came, and when its last bit had left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sent {
    pub number: u64,
    pub class: u32,
    pub size: u64,
    pub came: Time,
    pub done: Time,
}

impl Sent {
    pub fn took(&self) -> Duration {
        self.done.since(self.came)
    }
}

/// What comes: when, to which class, how large; in order of time.
pub type Arrivals = Vec<(Time, u32, u64)>;

/// A line of this rate sends what comes, until `end`: what has left, and the classes of what was dropped.
pub fn serve(
    queue: &mut Boxed,
    rate: Rate,
    arrivals: &Arrivals,
    end: Time,
) -> (Vec<Sent>, Vec<(u32, DropReason)>) {
    let (mut sent, mut dropped) = (Vec::new(), Vec::new());
    let (mut now, mut busy, mut carry, mut next) = (Time::ZERO, Time::ZERO, 0, 0);
    loop {
        let ready = queue.ready_at().map(|at| at.max(busy).max(now));
        let (at, arrives) = match (arrivals.get(next), ready) {
            (Some((came, ..)), Some(ready)) if *came > ready => (ready, false),
            (Some((came, ..)), _) => (*came, true),
            (None, Some(ready)) => (ready, false),
            (None, None) => break,
        };
        if at > end {
            break;
        }
        now = at;
        if arrives {
            let (_, class, size) = arrivals[next];
            next += 1;
            let parcel = Parcel { number: next as u64, flow: class, size, ecn: Ecn::NotEct };
            queue.enqueue(now, parcel, &mut |p, why| dropped.push((p.flow, why)));
            continue;
        }
        let Some(parcel) =
            queue.dequeue(now, &mut |_, _| unreachable!("none of them drops what it has taken"))
        else {
            assert!(queue.ready_at().is_none_or(|at| at > now), "it says now, and gives nothing");
            continue;
        };
        if now > busy {
            carry = 0;
        }
        busy = now + Duration::from_nanos(rate.transmit(parcel.size().0 as u32, &mut carry));
        let came = arrivals[parcel.number as usize - 1].0;
        sent.push(Sent { number: parcel.number, class: parcel.flow, size: parcel.size, came, done: busy });
    }
    (sent, dropped)
}

/// The arrivals of several sources in order of time.
pub fn together(sources: impl IntoIterator<Item = Arrivals>) -> Arrivals {
    let mut all: Arrivals = sources.into_iter().flatten().collect();
    all.sort_by_key(|(at, ..)| *at);
    all
}

/// Bytes of a class that were through until `until`.
pub fn through(sent: &[Sent], class: u32, until: Time) -> u64 {
    sent.iter().filter(|s| s.class == class && s.done <= until).map(|s| s.size).sum()
}
