//! Weighted fair queueing: packets leave in the order in which they would end in a fluid system (GPS, generalised processor sharing)
//! that serves all classes at once, each in proportion to its weight (A. Demers, S. Keshav, S. Shenker, "Analysis and Simulation of a
//! Fair Queueing Algorithm", SIGCOMM 1989; A. Parekh, R. Gallager, "A Generalized Processor Sharing Approach to Flow Control", IEEE/ACM
//! ToN 1(3), 1993). Virtual time V runs at C / (weights of the classes that the fluid system serves); the k-th packet of a class has
//!
//! ```text
//!   S_k = max(F_k-1, V(arrival))      F_k = S_k + L_k / weight      the smallest F leaves first
//! ```
//! Two clocks tell V:
//!
//! * `gps`, the default: the fluid system's own, kept exactly (to 10^-9 bit for each change of its set of classes). Only with it does
//!   Parekh's theorem 1 hold, which the tests check: a packet leaves no later than in the fluid system plus Lmax / C. It needs the
//!   line's rate. O(log n) for each packet, each class being taken out of the fluid system as often as it was put in.
//! * `start`: V is the start tag of the packet that left last, and the smallest S leaves first (P. Goyal, H. Vin, H. Cheng, "Start-time
//!   Fair Queuing", SIGCOMM 1996). It knows no rate, so it stays fair where a line's rate changes; two classes that both have packets
//!   are within one packet of each, by weight (their theorem 1, also checked). Delays may be longer, by a packet of every other class.
//!
//! WF2Q+ lies between: no fluid system, and Parekh's bound against a class's guaranteed share only, not against what GPS gives it.

use super::class::{CLASS_LIMIT, Queues, Site};
use super::heap::Heap;
use super::{Backlog, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::Rate;
use alloc::vec::Vec;

/// `wfq`, `{ kind = "wfq", clock = "start" }`
pub const ENTRY: Entry = Entry {
    name: "wfq",
    summary: "weighted fair queueing over the line's classes, or over flows, by virtual time (Demers et al., Parekh)",
    parameters: &[
        CLASS_LIMIT,
        Parameter {
            name: "clock",
            kind: Kind::Word(&["gps", "start"]),
            default: "gps",
            meaning: "virtual time: of the fluid system, exactly, or the start tag of the packet that left last (any rate)",
        },
    ],
    contains: false,
};

/// What one byte is, in bits times nanoseconds of rate, so that a rate times a time is exact.
const BYTE: u128 = 8_000_000_000;

/// A packet and its tag.
struct Tagged<P> {
    packet: P,
    tag: u128,
}

/// What is remembered of a class.
#[derive(Clone, Copy)]
struct Share {
    weight: u32,
    /// F of its last packet.
    finish: u128,
}

/// Queues and the fluid system that says whose turn it is.
pub struct Wfq<P> {
    queues: Queues<Tagged<P>>,
    shares: Vec<Share>,
    /// Classes with packets, by the tag of the first one.
    heads: Heap<u128>,
    /// `gps`: the classes that the fluid system serves, by when it is done. `start`: those without packets that are still ahead of V.
    fluid: Heap<u128>,
    /// The rate of the fluid system; `None` with clock `start`.
    rate: Option<Rate>,
    /// V, in bits times nanoseconds of rate for each unit of weight.
    virtual_time: u128,
    /// The weights of the classes in `fluid`.
    weights: u64,
    /// Work of the fluid system that was too little to move V.
    carry: u128,
    updated: Time,
}

impl<P: Packet> Wfq<P> {
    /// Reads `clock`, `class_limit` and the weights of the line's classes.
    pub fn new(settings: &Settings, site: &Site) -> Result<Self, Unfit> {
        let queues = Queues::new(settings, site)?;
        let rate = match &*settings.word("clock") {
            "gps" => Some(site.line("clock")?.rate),
            _ => None,
        };
        Ok(Wfq {
            queues,
            shares: site.classes.iter().map(|class| Share { weight: class.weight, finish: 0 }).collect(),
            heads: Heap::new(),
            fluid: Heap::new(),
            rate,
            virtual_time: 0,
            weights: 0,
            carry: 0,
            updated: Time::ZERO,
        })
    }

    /// The fluid system works until `now`.
    fn advance(&mut self, now: Time) {
        let Some(rate) = self.rate else { return };
        let mut work = rate.0 as u128 * now.since(self.updated).as_nanos() + self.carry;
        self.updated = self.updated.max(now);
        while let Some((end, class)) = self.fluid.first() {
            let until = (end - self.virtual_time) * self.weights as u128;
            if until > work {
                self.virtual_time += work / self.weights as u128;
                work %= self.weights as u128;
                break;
            }
            work -= until;
            self.virtual_time = end;
            self.fluid.pop();
            self.weights -= self.shares[class].weight as u64;
            if self.queues.head(class).is_none() {
                self.queues.forget(class);
            }
        }
        self.carry = if self.fluid.is_empty() { 0 } else { work };
    }

    /// With clock `start`: V has come to `tag`, and flows that it has passed are forgotten.
    fn reach(&mut self, tag: u128) {
        self.virtual_time = self.virtual_time.max(tag);
        while let Some((_, class)) = self.fluid.first().filter(|(finish, _)| *finish <= self.virtual_time) {
            self.fluid.pop();
            self.queues.forget(class);
        }
    }
}

impl<P: Packet + Send> Qdisc<P> for Wfq<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        self.advance(now);
        let known = self.queues.len();
        let Some((class, packet)) = self.queues.admit(packet, drop) else { return };
        if self.queues.len() > known {
            self.shares.push(Share { weight: 1, finish: 0 });
        }
        let share = &mut self.shares[class];
        let start = share.finish.max(self.virtual_time);
        share.finish = start + packet.size().0 as u128 * BYTE / share.weight as u128;
        let (finish, size) = (share.finish, packet.size());
        let tag = if self.rate.is_some() { finish } else { start };
        if self.rate.is_none() {
            self.fluid.remove(class);
        } else {
            if !self.fluid.has(class) {
                self.weights += share.weight as u64;
            }
            self.fluid.set(class, finish);
        }
        if self.queues.push(class, size, Tagged { packet, tag }) {
            self.heads.set(class, tag);
        }
    }

    fn dequeue(&mut self, now: Time, _drop: Drops<'_, P>) -> Option<P> {
        self.advance(now);
        let (tag, class) = self.heads.first()?;
        let packet = self.queues.pop(class, |tagged| tagged.packet.size())?.packet;
        match self.queues.head(class).map(|next| next.tag) {
            Some(tag) => self.heads.set(class, tag),
            None => {
                self.heads.remove(class);
                match self.rate {
                    None => self.fluid.set(class, self.shares[class].finish),
                    Some(_) if !self.fluid.has(class) => self.queues.forget(class),
                    Some(_) => {}
                }
            }
        }
        if self.rate.is_none() {
            self.reach(tag);
        }
        Some(packet)
    }

    fn ready_at(&self) -> Option<Time> {
        (!self.heads.is_empty()).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}
