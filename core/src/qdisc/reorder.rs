//! Reordering before a queue: some packets step aside for a fixed time while those behind them pass, as when one of two paths
//! is longer. Afterwards they join the inner queue like any arrival, and may find it full.

use super::chosen::{self, Chosen};
use super::{Backlog, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit, positive_time};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Bytes;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

/// `reorder:0.01`, `{ kind = "reorder", packets = [3, 9], by = "20ms", inner = "fifo:64KiB" }`
pub const ENTRY: Entry = Entry {
    name: "reorder",
    summary: "holds packets back at random or by list while others pass, before the inner queue",
    parameters: &PARAMETERS,
    contains: true,
};

const PARAMETERS: [Parameter; 3] = {
    let [probability, packets] = chosen::parameters(
        "chance of each packet to be held back, 0 to 1",
        "exactly these packets are held back, counted from 1 in order of arrival",
    );
    let by = Parameter { name: "by", kind: Kind::Time, default: "5ms", meaning: "for how long" };
    [probability, packets, by]
};

/// Reordering in front of a queue.
pub struct Reorder<P> {
    late: Chosen,
    by: Duration,
    /// Those held back and when each may go on: in order, since all wait equally long.
    held: VecDeque<(Time, P)>,
    held_bytes: u64,
    inner: Box<dyn Qdisc<P>>,
}

impl<P: Packet> Reorder<P> {
    /// Reads `probability`, `packets` and `by`.
    pub fn new(settings: &Settings, inner: Box<dyn Qdisc<P>>, rng: Rng) -> Result<Self, Unfit> {
        let (late, by) = (Chosen::new(settings, rng)?, positive_time(settings, "by")?);
        Ok(Reorder { late, by, held: VecDeque::new(), held_bytes: 0, inner })
    }

    /// Whose time has come joins the inner queue, at that time: a host that looks late makes no packet younger.
    fn release(&mut self, now: Time, drop: Drops<'_, P>) {
        while let Some((due, packet)) = self.held.pop_front_if(|(due, _)| *due <= now) {
            self.held_bytes -= packet.size().0;
            self.inner.enqueue(due, packet, drop);
        }
    }
}

impl<P: Packet + Send> Qdisc<P> for Reorder<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        self.release(now, drop);
        if self.late.strikes().is_some() {
            self.held_bytes += packet.size().0;
            return self.held.push_back((now + self.by, packet));
        }
        self.inner.enqueue(now, packet, drop);
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        self.release(now, drop);
        self.inner.dequeue(now, drop)
    }

    fn ready_at(&self) -> Option<Time> {
        let due = self.held.front().map(|(due, _)| *due);
        [due, self.inner.ready_at()].into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        let Backlog { packets, bytes } = self.inner.backlog();
        Backlog { packets: packets + self.held.len() as u64, bytes: Bytes(bytes.0 + self.held_bytes) }
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.inner.inspect(probe)
    }
}
