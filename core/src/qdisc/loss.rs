//! Loss before a queue: each packet with a probability of its own (Bernoulli), or exactly the packets on a list, counted from
//! 1 in order of arrival.

use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit, within};
use crate::rng::Rng;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// `loss:0.01`, `{ kind = "loss", packets = [3, 4, 9], inner = "fifo:64KiB" }`
pub const ENTRY: Entry = Entry {
    name: "loss",
    summary: "drops packets at random or by list, before the inner queue",
    parameters: &[
        Parameter {
            name: "probability",
            kind: Kind::Ratio,
            default: "0",
            meaning: "chance of each packet to be lost, 0 to 1",
        },
        Parameter {
            name: "packets",
            kind: Kind::List,
            default: "[]",
            meaning: "exactly these packets are lost, counted from 1 in order of arrival",
        },
    ],
    contains: true,
};

/// Loss in front of a queue.
pub struct Loss<P> {
    probability: f64,
    packets: Vec<u64>,
    listed: usize,
    arrived: u64,
    rng: Rng,
    inner: Box<dyn Qdisc<P>>,
}

impl<P> Loss<P> {
    /// Reads `probability` and `packets`.
    pub fn new(settings: &Settings, inner: Box<dyn Qdisc<P>>, rng: Rng) -> Result<Self, Unfit> {
        let mut packets = settings.list("packets");
        packets.sort_unstable();
        packets.dedup();
        if packets.first() == Some(&0) {
            return Err(Unfit::new("packets", "packets are counted from 1: there is no packet 0"));
        }
        Ok(Loss {
            probability: within(settings, "probability", 0.0, 1.0)?,
            packets,
            listed: 0,
            arrived: 0,
            rng,
            inner,
        })
    }
}

impl<P: Packet> Qdisc<P> for Loss<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        self.arrived += 1;
        if self.packets.get(self.listed) == Some(&self.arrived) {
            self.listed += 1;
            return drop(packet, DropReason::Listed);
        }
        if self.probability > 0.0 && self.rng.chance(self.probability) {
            return drop(packet, DropReason::RandomLoss);
        }
        self.inner.enqueue(now, packet, drop);
    }
    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        self.inner.dequeue(now, drop)
    }
    fn ready_at(&self) -> Option<Time> {
        self.inner.ready_at()
    }
    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}
