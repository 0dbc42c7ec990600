//! Loss before a queue: each packet with a probability of its own (Bernoulli), or exactly the packets on a list, counted from
//! 1 in order of arrival.

use super::chosen::{self, Cause, Chosen};
use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Settings, Unfit};
use crate::rng::Rng;
use crate::time::Time;
use alloc::boxed::Box;

/// `loss:0.01`, `{ kind = "loss", packets = [3, 4, 9], inner = "fifo:64KiB" }`
pub const ENTRY: Entry = Entry {
    name: "loss",
    summary: "drops packets at random or by list, before the inner queue",
    parameters: &chosen::parameters(
        "chance of each packet to be lost, 0 to 1",
        "exactly these packets are lost, counted from 1 in order of arrival",
    ),
    contains: true,
};

/// Loss in front of a queue.
pub struct Loss<P> {
    lost: Chosen,
    inner: Box<dyn Qdisc<P>>,
}

impl<P> Loss<P> {
    /// Reads `probability` and `packets`.
    pub fn new(settings: &Settings, inner: Box<dyn Qdisc<P>>, rng: Rng) -> Result<Self, Unfit> {
        Ok(Loss { lost: Chosen::new(settings, rng)?, inner })
    }
}

impl<P: Packet> Qdisc<P> for Loss<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        match self.lost.strikes() {
            Some(Cause::Listed) => drop(packet, DropReason::Listed),
            Some(Cause::Random) => drop(packet, DropReason::RandomLoss),
            None => self.inner.enqueue(now, packet, drop),
        }
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
    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.inner.inspect(probe)
    }
}
