//! Controlled Delay (K. Nichols, V. Jacobson, A. McGregor, J. Iyengar, RFC 8289), with Linux's arithmetic (codel_impl.h): what
//! has waited at least `target` throughout `interval` is a standing queue, and packets are dropped at its head, or marked, at
//! intervals of interval/sqrt(count), until a packet has waited less.
//!
//! ```text
//!              waited >= target for interval: drop one, count = 1 (or as many as in a recent dropping state)
//!   watching ─────────────────────────────────────────────────────────────────────────────────────► dropping
//!      ▲                                                                                             │   ▲ │ drop_next reached:
//!      └──────────────── a packet waited < target, or at most one packet is left ────────────────────┘   └─┘ drop, count += 1
//! ```
//! 1/sqrt(count) is kept in 16 bits and corrected by one Newton step whenever count changes, as in Linux. The step from 1 to 2
//! is a long one: the second interval is interval/2, not interval/sqrt(2), the third 2.6 % short; from the seventh on it is
//! within 1 %.
//!
//! Deviations from Linux: time is in nanoseconds of 64 bits, not in units of 1024 ns of 32; a packet may be dropped at the very
//! instant that `interval` is over (RFC 8289: `now >= first_above_time`; Linux waits for the next tick); and "one packet" is
//! the largest seen (RFC 8289's maxpacket), not the device's MTU.

use super::fifo::Fifo;
use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::packet::{Ecn, FlowId, Packet};
use crate::registry::{Kind, Parameter, Settings, Unfit, positive_time};
use crate::time::{Time, nanos};
use crate::units::Bytes;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// `codel`, `codel:100p`, `{ kind = "codel", target = "20ms", interval = "400ms" }`
pub const ENTRY: Entry = Entry {
    name: "codel",
    summary: "Controlled Delay: drops or marks at the head what keeps waiting too long (RFC 8289)",
    parameters: &[
        Parameter {
            name: "limit",
            kind: Kind::Limit,
            default: "1000p",
            meaning: "room for waiting packets, in packets or bytes (Linux: 1000 packets)",
        },
        Parameter {
            name: "target",
            kind: Kind::Time,
            default: "5ms",
            meaning: "acceptable standing delay (RFC 8289 section 4.4)",
        },
        Parameter {
            name: "interval",
            kind: Kind::Time,
            default: "100ms",
            meaning: "how long the delay may be above target: about the largest round-trip time (section 4.3)",
        },
        Parameter {
            name: "ecn",
            kind: Kind::Flag,
            default: "false",
            meaning: "mark ECN-capable packets rather than drop them (off in Linux's codel, too)",
        },
        Parameter {
            name: "ce_threshold",
            kind: Kind::Time,
            default: "0s",
            meaning: "mark every ECN-capable packet that has waited longer than this; 0s: none",
        },
    ],
    contains: false,
};

/// What a [`CodelLaw`] is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Acceptable standing delay.
    pub target: Duration,
    /// How long it may be exceeded.
    pub interval: Duration,
    /// Whether ECN-capable packets are marked rather than dropped.
    pub ecn: bool,
    /// Beyond this every ECN-capable packet is marked, whatever the state.
    pub ce_threshold: Option<Duration>,
}

/// A packet, and since when it waits.
#[derive(Clone, Debug)]
pub struct Waiting<P> {
    /// The packet.
    pub packet: P,
    /// When it came.
    pub since: Time,
}

impl<P: Packet> Packet for Waiting<P> {
    fn size(&self) -> Bytes {
        self.packet.size()
    }
    fn flow(&self) -> FlowId {
        self.packet.flow()
    }
    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }
    fn mark_ce(&mut self) -> bool {
        self.packet.mark_ce()
    }
}

/// State of the law.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Vars {
    /// Packets struck since the dropping state was entered.
    count: u32,
    /// `count` when it was entered.
    last_count: u32,
    dropping: bool,
    /// 1/sqrt(count) in units of 2^-16.
    inverse_root: u16,
    /// When packets will have waited too long for an interval.
    first_above: Option<Time>,
    drop_next: Time,
    /// How long the last packet looked at had waited.
    sojourn: Duration,
}

/// The law of one queue: when its head is dropped. It has no queue and no clock of its own, so that disciplines with many
/// queues have one each.
#[derive(Clone, Debug)]
pub struct CodelLaw {
    params: Params,
    vars: Vars,
    /// The largest packet seen at the head, in bytes.
    max_packet: u64,
}

impl CodelLaw {
    /// Nothing has waited too long yet.
    pub fn new(params: Params) -> Self {
        CodelLaw { params, vars: Vars::default(), max_packet: 0 }
    }

    /// Packets struck in the present dropping state; 0 outside of one.
    pub fn drop_count(&self) -> u32 {
        if self.vars.dropping { self.vars.count } else { 0 }
    }

    /// How long the last packet looked at had waited.
    pub fn sojourn(&self) -> Duration {
        self.vars.sojourn
    }

    /// The packet to deliver. `next` takes the head of the queue, and says how many bytes wait behind it.
    pub fn dequeue<P: Packet>(
        &mut self,
        now: Time,
        mut next: impl FnMut() -> Option<(Waiting<P>, Bytes)>,
        drop: Drops<'_, P>,
    ) -> Option<P> {
        let mut head = next();
        let too_long = self.too_long(now, head.as_ref());
        if too_long && !self.vars.dropping {
            head = self.strike(head, drop);
            if head.is_none() {
                head = next();
                self.too_long(now, head.as_ref());
            }
            self.enter(now);
        } else {
            self.vars.dropping = too_long;
            while self.vars.dropping && now >= self.vars.drop_next {
                self.vars.count = self.vars.count.wrapping_add(1);
                self.newton_step();
                head = self.strike(head, drop);
                let marked = head.is_some();
                if !marked {
                    head = next();
                    self.vars.dropping = self.too_long(now, head.as_ref());
                }
                if self.vars.dropping {
                    self.vars.drop_next = self.control_law(self.vars.drop_next);
                }
                if marked {
                    break; // the packet leaves, marked once
                }
            }
        }
        let (Waiting { mut packet, .. }, _) = head?;
        if self.params.ce_threshold.is_some_and(|threshold| self.vars.sojourn > threshold) {
            packet.mark_ce();
        }
        Some(packet)
    }

    /// Whether packets have waited too long throughout an interval, up to this one (codel_should_drop).
    fn too_long<P: Packet>(&mut self, now: Time, head: Option<&(Waiting<P>, Bytes)>) -> bool {
        let Some((head, behind)) = head else {
            self.vars.first_above = None;
            return false;
        };
        self.vars.sojourn = now.since(head.since);
        self.max_packet = self.max_packet.max(head.size().0);
        if self.vars.sojourn < self.params.target || behind.0 <= self.max_packet {
            self.vars.first_above = None;
            return false;
        }
        now >= *self.vars.first_above.get_or_insert(now + self.params.interval)
    }

    /// Marks the packet, if that is wanted and possible, or drops it.
    fn strike<P: Packet>(
        &self,
        head: Option<(Waiting<P>, Bytes)>,
        drop: Drops<'_, P>,
    ) -> Option<(Waiting<P>, Bytes)> {
        let (mut head, behind) = head?;
        if self.params.ecn && head.mark_ce() {
            return Some((head, behind));
        }
        drop(head.packet, DropReason::Early);
        None
    }

    /// The first packet has been struck. If the last dropping state ended a short while ago, its rate of drops is a good start.
    fn enter(&mut self, now: Time) {
        let (vars, interval) = (&mut self.vars, self.params.interval);
        vars.dropping = true;
        let struck = vars.count.wrapping_sub(vars.last_count);
        if struck > 1 && now < vars.drop_next + interval.saturating_mul(RECENT) {
            vars.count = struck;
            self.newton_step();
        } else {
            (vars.count, vars.inverse_root) = (1, u16::MAX);
        }
        self.vars.last_count = self.vars.count;
        self.vars.drop_next = self.control_law(now);
    }

    /// x (3 - count x^2) / 2, in fixed point (codel_Newton_step).
    fn newton_step(&mut self) {
        let x = (self.vars.inverse_root as u64) << 16; // in units of 2^-32
        let squared = (x * x) >> 32;
        let rest = (3u64 << 32).saturating_sub(self.vars.count as u64 * squared);
        self.vars.inverse_root = ((((rest >> 2) * x) >> (32 - 2 + 1)) >> 16) as u16;
    }

    /// t + interval/sqrt(count).
    fn control_law(&self, t: Time) -> Time {
        let part = (nanos(self.params.interval) as u128 * self.vars.inverse_root as u128) >> 16;
        t + Duration::from_nanos(part as u64)
    }
}

/// "A short while" is so many intervals (RFC 8289 section 5.5, and Linux).
const RECENT: u32 = 16;

/// A queue under [`CodelLaw`].
pub struct Codel<P> {
    law: CodelLaw,
    queue: Fifo<Waiting<P>>,
}

impl<P: Packet + Send> Codel<P> {
    /// Reads its parameters.
    pub fn new(settings: &Settings) -> Result<Self, Unfit> {
        let threshold = settings.time("ce_threshold");
        let params = Params {
            target: positive_time(settings, "target")?,
            interval: positive_time(settings, "interval")?,
            ecn: settings.flag("ecn"),
            ce_threshold: (!threshold.is_zero()).then_some(threshold),
        };
        Ok(Codel { law: CodelLaw::new(params), queue: Fifo::new(settings)? })
    }
}

impl<P: Packet + Send> Qdisc<P> for Codel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        let waiting = Waiting { packet, since: now };
        self.queue.enqueue(now, waiting, &mut |w, reason| drop(w.packet, reason));
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        let queue = &mut self.queue;
        let next = || {
            let head = queue.dequeue(now, &mut |_, _| {})?;
            Some((head, queue.backlog().bytes))
        };
        self.law.dequeue(now, next, drop)
    }

    fn ready_at(&self) -> Option<Time> {
        self.queue.ready_at()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        probe("sojourn", self.law.sojourn().as_secs_f64());
        probe("drop_count", self.law.drop_count() as f64);
    }
}
