//! Token bucket (r, b): a packet leaves when the bucket holds its size in tokens; tokens come at rate r up to depth b. With a
//! bucket of one packet it is a shaper with constant spacing. What waits, waits in the discipline inside, but for the packet
//! whose tokens are being collected: it has left the inner queue and its limit, as in Linux's tbf.

use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::limit::Bucket;
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::Bytes;
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

/// A token bucket in front of which packets wait.
pub struct Shaper<P> {
    bucket: Bucket,
    burst: Bytes,
    /// When the head was last asked for.
    asked: Time,
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
        Ok(Shaper { bucket: Bucket::new(rate, burst), burst, asked: Time::ZERO, head: None, inner })
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
        self.asked = now;
        if self.bucket.take(now, self.head.as_ref()?.size()) { self.head.take() } else { None }
    }

    fn ready_at(&self) -> Option<Time> {
        let Some(head) = &self.head else { return self.inner.ready_at() };
        Some(self.bucket.ready_at(self.asked, head.size()))
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
