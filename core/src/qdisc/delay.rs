//! A delay line: every packet leaves a fixed time after it came, in order. The queue form of propagation delay, for hosts whose
//! links have none of their own.

use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit, Value};
use crate::time::Time;
use crate::units::Bytes;
use alloc::collections::VecDeque;
use core::time::Duration;

/// `delay:10ms`
pub const ENTRY: Entry = Entry {
    name: "delay",
    summary: "delay line: every packet leaves a fixed time after it came",
    parameters: &[
        Parameter { name: "by", kind: Kind::Time, default: "", meaning: "how long every packet waits" },
        Parameter {
            name: "limit",
            kind: Kind::Limit,
            default: "1000000p",
            meaning: "room for packets under way, in bytes or packets",
        },
    ],
    contains: false,
};

/// A delay line.
pub struct Delay<P> {
    by: Duration,
    limit_bytes: u64,
    limit_packets: u64,
    line: VecDeque<(Time, P)>,
    bytes: u64,
}

impl<P: Packet> Delay<P> {
    /// Reads `by` and `limit`.
    pub fn new(settings: &Settings) -> Result<Self, Unfit> {
        let (limit_bytes, limit_packets) = match settings.value("limit") {
            Some(Value::Bytes(b)) => (b.0, u64::MAX),
            Some(Value::Packets(n)) => (u64::MAX, *n),
            other => panic!("limit is {other:?}"),
        };
        if limit_bytes == 0 || limit_packets == 0 {
            return Err(Unfit::new(
                "limit",
                "a line without room drops everything: write at least one packet, or leave it out",
            ));
        }
        Ok(Delay { by: settings.time("by"), limit_bytes, limit_packets, line: VecDeque::new(), bytes: 0 })
    }
}

impl<P: Packet + Send> Qdisc<P> for Delay<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        let size = packet.size().0;
        if self.bytes + size > self.limit_bytes || self.line.len() as u64 >= self.limit_packets {
            return drop(packet, DropReason::Full);
        }
        self.bytes += size;
        self.line.push_back((now + self.by, packet));
    }

    fn dequeue(&mut self, now: Time, _drop: Drops<'_, P>) -> Option<P> {
        if self.line.front()?.0 > now {
            return None;
        }
        let (_, packet) = self.line.pop_front()?;
        self.bytes -= packet.size().0;
        Some(packet)
    }

    fn ready_at(&self) -> Option<Time> {
        self.line.front().map(|(due, _)| *due)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.line.len() as u64, bytes: Bytes(self.bytes) }
    }
}
