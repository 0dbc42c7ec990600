//! First in, first out, with a limit in bytes or packets: drop-tail. The arriving packet is dropped when the limit would be
//! exceeded (`used + size > limit`).

use super::{Backlog, DropReason, Drops, Entry, LIMIT, Qdisc};
use crate::packet::Packet;
use crate::registry::{Settings, Unfit, Value};
use crate::time::Time;
use crate::units::Bytes;
use alloc::collections::VecDeque;

/// `fifo:128KiB`, `fifo:100p`
pub const ENTRY: Entry = Entry {
    name: "fifo",
    summary: "drop-tail queue, limited in bytes or packets",
    parameters: &[LIMIT],
    contains: false,
};

/// A drop-tail queue.
pub struct Fifo<P> {
    queue: VecDeque<P>,
    bytes: u64,
    limit_bytes: u64,
    limit_packets: u64,
}

impl<P: Packet> Fifo<P> {
    /// Reads `limit`.
    pub fn new(settings: &Settings) -> Result<Self, Unfit> {
        let (limit_bytes, limit_packets) = match settings.value("limit") {
            Some(Value::Bytes(b)) => (b.0, u64::MAX),
            Some(Value::Packets(n)) => (u64::MAX, *n),
            other => panic!("limit is {other:?}"),
        };
        if limit_bytes == 0 || limit_packets == 0 {
            return Err(Unfit::new(
                "limit",
                "a queue without room drops everything: write at least one packet, for example 128KiB or 100p",
            ));
        }
        Ok(Fifo { queue: VecDeque::new(), bytes: 0, limit_bytes, limit_packets })
    }

    /// A queue that never drops.
    pub fn unlimited() -> Self {
        Fifo { queue: VecDeque::new(), bytes: 0, limit_bytes: u64::MAX, limit_packets: u64::MAX }
    }

    /// Whether a packet of this size would be taken.
    #[inline]
    pub fn has_room_for(&self, size: Bytes) -> bool {
        self.bytes + size.0 <= self.limit_bytes && (self.queue.len() as u64) < self.limit_packets
    }
}

impl<P: Packet + Send> Qdisc<P> for Fifo<P> {
    #[inline]
    fn enqueue(&mut self, _now: Time, packet: P, drop: Drops<'_, P>) {
        if !self.has_room_for(packet.size()) {
            return drop(packet, DropReason::Full);
        }
        self.bytes += packet.size().0;
        self.queue.push_back(packet);
    }

    #[inline]
    fn dequeue(&mut self, _now: Time, _drop: Drops<'_, P>) -> Option<P> {
        let packet = self.queue.pop_front()?;
        self.bytes -= packet.size().0;
        Some(packet)
    }

    #[inline]
    fn has_room(&mut self, _now: Time, size: Bytes) -> bool {
        self.has_room_for(size)
    }

    #[inline]
    fn ready_at(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(Time::ZERO)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        Backlog { packets: self.queue.len() as u64, bytes: Bytes(self.bytes) }
    }
}
