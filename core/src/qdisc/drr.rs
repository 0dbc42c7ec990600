//! Deficit round robin (M. Shreedhar, G. Varghese, "Efficient Fair Queuing Using Deficit Round-Robin", IEEE/ACM ToN 4(3), 1996):
//! classes that have packets take turns; at each turn a class may send `quantum` times its weight, and what it could not use because
//! its next packet was too large it keeps for the next turn. A class that runs empty keeps nothing.
//!
//! O(1) for each packet as long as a quantum holds the largest packet (their theorem 1), which is why it is the line's MTU unless
//! given; with a smaller one a turn may pass without a packet.

use super::class::{CLASS_LIMIT, Queues, Site};
use super::{Backlog, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::Bytes;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// `drr`, `{ kind = "drr", quantum = "3000B" }`
pub const ENTRY: Entry = Entry {
    name: "drr",
    summary: "deficit round robin over the line's classes by weight, or over flows (Shreedhar and Varghese)",
    parameters: &[
        CLASS_LIMIT,
        Parameter {
            name: "quantum",
            kind: Kind::Bytes,
            default: "0B",
            meaning: "what a class of weight 1 may send at each turn; 0B: the line's MTU (section III: the largest packet, for O(1))",
        },
    ],
    contains: false,
};

/// Queues that take turns.
pub struct Drr<P> {
    queues: Queues<P>,
    /// What each may still send at its turn.
    deficit: Vec<u64>,
    weight: Vec<u64>,
    quantum: u64,
    /// Those with packets; the first one's turn it is.
    active: VecDeque<u32>,
    /// Whether the first one has had its quantum.
    given: bool,
}

impl<P: Packet> Drr<P> {
    /// Reads `quantum`, `class_limit` and the weights of the line's classes.
    pub fn new(settings: &Settings, site: &Site) -> Result<Self, Unfit> {
        let queues = Queues::new(settings, site)?;
        let quantum = match settings.bytes("quantum") {
            Bytes::ZERO => site.line("quantum")?.mtu,
            given => given,
        };
        let weight: Vec<_> = site.classes.iter().map(|class| class.weight as u64).collect();
        let deficit = weight.iter().map(|_| 0).collect();
        Ok(Drr { queues, deficit, weight, quantum: quantum.0, active: VecDeque::new(), given: false })
    }
}

impl<P: Packet + Send> Qdisc<P> for Drr<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drop: Drops<'_, P>) {
        let Some((class, packet)) = self.queues.admit(packet, drop) else { return };
        if self.queues.push(class, packet.size(), packet) {
            self.weight.resize(self.queues.len(), 1);
            self.deficit.resize(self.queues.len(), 0);
            self.active.push_back(class as u32);
        }
    }

    fn dequeue(&mut self, _now: Time, _drop: Drops<'_, P>) -> Option<P> {
        loop {
            let class = *self.active.front()? as usize;
            if !core::mem::replace(&mut self.given, true) {
                self.deficit[class] += self.quantum * self.weight[class];
            }
            let size = self.queues.head(class).map_or(Bytes::ZERO, P::size).0;
            if size > self.deficit[class] {
                self.active.rotate_left(1);
                self.given = false;
                continue;
            }
            self.deficit[class] -= size;
            let packet = self.queues.pop(class, P::size);
            if self.queues.head(class).is_none() {
                self.active.pop_front();
                (self.deficit[class], self.given) = (0, false);
                self.queues.forget(class);
            }
            return packet;
        }
    }

    fn ready_at(&self) -> Option<Time> {
        (!self.active.is_empty()).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}
