//! Token bucket (r, b): a packet leaves when the bucket holds its size in tokens; tokens come at rate r up to depth b. With a
//! bucket of one packet it is a shaper with constant spacing. What waits, waits in the discipline inside, but for the packet
//! whose tokens are being collected: it has left the inner queue and its limit, as in Linux's tbf.

use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use alloc::boxed::Box;

/// `shaper:10Mbit/s`, `{ kind = "shaper", rate = "10Mbit/s", burst = "15kB", inner = "fifo:64KiB" }`
pub const ENTRY: Entry = Entry {
    name: "shaper",
    summary: "token bucket: lets packets of the inner queue pass at a rate, with a burst allowance",
    parameters: &[
        Parameter {
            name: "rate",
            kind: Kind::Rate,
            default: "",
            meaning: "tokens per second, counting whole IP packets",
        },
        Parameter {
            name: "burst",
            kind: Kind::Bytes,
            default: "1514B",
            meaning: "depth of the bucket; larger packets never pass",
        },
    ],
    contains: true,
};

/// One token is one byte at one bit per second: counting in bit-nanoseconds keeps the bucket exact without fractions.
const BYTE: u128 = 8_000_000_000;

/// A token bucket in front of which packets wait.
pub struct Shaper<P> {
    rate: Rate,
    burst: Bytes,
    /// In byte-seconds of rate: bytes * `BYTE`.
    tokens: u128,
    updated: Time,
    /// The packet that waits for tokens: taken from `inner`, still part of the backlog.
    head: Option<P>,
    inner: Box<dyn Qdisc<P>>,
}

impl<P: Packet> Shaper<P> {
    /// Reads `rate` and `burst`; the bucket starts full.
    pub fn new(settings: &Settings, inner: Box<dyn Qdisc<P>>) -> Result<Self, Unfit> {
        let (rate, burst) = (settings.rate("rate"), settings.bytes("burst"));
        if rate.0 == 0 {
            return Err(Unfit::new("rate", "nothing passes at rate zero: write for example 10Mbit/s"));
        }
        if burst.0 == 0 {
            return Err(Unfit::new(
                "burst",
                "an empty bucket lets nothing pass: write at least one packet, for example 1514B",
            ));
        }
        Ok(Shaper { rate, burst, tokens: burst.0 as u128 * BYTE, updated: Time::ZERO, head: None, inner })
    }

    fn tokens_at(&self, now: Time) -> u128 {
        let earned = self.rate.0 as u128 * now.since(self.updated).as_nanos();
        (self.tokens + earned).min(self.burst.0 as u128 * BYTE)
    }
}

impl<P: Packet + Send> Qdisc<P> for Shaper<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        if packet.size() > self.burst {
            return drop(packet, DropReason::NeverFits);
        }
        self.inner.enqueue(now, packet, drop);
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        if self.head.is_none() {
            self.head = self.inner.dequeue(now, drop);
        }
        let cost = self.head.as_ref()?.size().0 as u128 * BYTE;
        let tokens = self.tokens_at(now);
        (self.tokens, self.updated) = (tokens, now);
        if tokens < cost {
            return None;
        }
        self.tokens -= cost;
        self.head.take()
    }

    fn ready_at(&self) -> Option<Time> {
        let Some(head) = &self.head else { return self.inner.ready_at() };
        let missing = (head.size().0 as u128 * BYTE).saturating_sub(self.tokens);
        let wait = missing.div_ceil(self.rate.0 as u128).min(u64::MAX as u128) as u64;
        Some(self.updated + core::time::Duration::from_nanos(wait))
    }

    fn backlog(&self) -> Backlog {
        let inner = self.inner.backlog();
        let head = self.head.as_ref();
        Backlog {
            packets: inner.packets + head.is_some() as u64,
            bytes: inner.bytes + head.map_or(Bytes::ZERO, |p| p.size()),
        }
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.inner.inspect(probe)
    }
}
