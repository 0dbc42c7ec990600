//! Random Early Detection (S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM ToN
//! 1(4), 1993), with the logic of ns-2's red.cc, which most papers on it ran: `wait`, `gentle` (Floyd, "Recommendation on using
//! the gentle_ variant of RED", 2000), ECN, and adaptive RED (S. Floyd, R. Gummadi, S. Shenker, "Adaptive RED", 2001).
//!
//! At every arrival, with q what waits before it:
//! ```text
//! average := (1 - w)^m average                   m small packets the line could have sent while nothing waited
//! average := (1 - w) average + w q
//! p_b: 0 at min, rising to max_p at max, from there (gentle) to 1 at 2 max, or (not gentle) 1
//! p_a: p_b spread by the packets since the last victim, so that gaps are uniform rather than geometric:
//!      wait: 0 while count p_b < 1, then p_b / (2 - count p_b): gaps of 1/p_b to 2/p_b
//!      else: p_b / (1 - count p_b): gaps of 1 to 1/p_b
//! ```
//! The victim is the packet that arrives: marked if it is ECN-capable and p_b < `mark_limit`, else dropped.
//!
//! Deviations from ns-2: the limit in bytes is never exceeded (`used + size > limit`, as in `fifo`; ns-2 lets one packet
//! overhang it), what is dropped for want of room is not marked before, and the slope of `gentle` follows an adaptive `max_p`
//! (ns-2 keeps the one it began with). ns-2 finds the line idle when it asks for a packet in vain; hosts do not ask an empty
//! queue, so idleness begins when the last packet has been transmitted at `rate`.

use super::fifo::Fifo;
use super::{Backlog, DropReason, Drops, Entry, LIMIT, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit, Value, within};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Rate;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// `{ kind = "red", limit = "50p", min = "5p", max = "15p", rate = "1.5Mbit/s" }`
pub const ENTRY: Entry = Entry {
    name: "red",
    summary: "Random Early Detection: drops or marks at random as the average queue grows (Floyd & Jacobson 1993)",
    parameters: &[
        LIMIT,
        Parameter {
            name: "min",
            kind: Kind::Limit,
            default: "",
            meaning: "average queue from which packets are struck, in the unit of `limit`",
        },
        Parameter {
            name: "max",
            kind: Kind::Limit,
            default: "",
            meaning: "average queue at which the probability has reached max_p, in the unit of `limit`",
        },
        Parameter {
            name: "rate",
            kind: Kind::Rate,
            default: "",
            meaning: "the line's, for what it could have sent while nothing waited",
        },
        Parameter {
            name: "weight",
            kind: Kind::Ratio,
            default: "0.002",
            meaning: "w_q, of the newest sample; 0: 1 - exp(-1/C), C the line's mean packets per second (ns-2)",
        },
        Parameter { name: "max_p", kind: Kind::Ratio, default: "0.1", meaning: "probability at `max`" },
        Parameter {
            name: "gentle",
            kind: Kind::Flag,
            default: "true",
            meaning: "from max_p to 1 between max and 2 max, rather than 1 above max",
        },
        Parameter {
            name: "wait",
            kind: Kind::Flag,
            default: "true",
            meaning: "at least 1/p_b packets between two victims, at most 2/p_b, rather than 1 to 1/p_b",
        },
        Parameter {
            name: "mean_packet",
            kind: Kind::Bytes,
            default: "500B",
            meaning: "size of a mean packet, for idle times and for `bytes`",
        },
        Parameter {
            name: "bytes",
            kind: Kind::Flag,
            default: "false",
            meaning: "probability in proportion to a packet's size over mean_packet",
        },
        Parameter {
            name: "ecn",
            kind: Kind::Flag,
            default: "true",
            meaning: "mark ECN-capable packets rather than drop them, below `max` (gentle: 2 max) and `limit`",
        },
        Parameter {
            name: "mark_limit",
            kind: Kind::Ratio,
            default: "1",
            meaning: "mark only while p_b is below this (ns-2's mark_p_)",
        },
        Parameter {
            name: "adaptive",
            kind: Kind::Flag,
            default: "false",
            meaning: "max_p moves within 0.01 to 0.5 to keep the average midway between min and max",
        },
    ],
    contains: false,
};

/// Adaptive RED section 4: max_p moves twice a second at most ...
const ADAPT_INTERVAL: Duration = Duration::from_millis(500);
/// ... up by this, or by a quarter of itself if that is less ...
const ALPHA: f64 = 0.01;
/// ... down by this factor ...
const BETA: f64 = 0.9;
/// ... unless it is beyond these already ...
const MAX_P_BOUNDS: (f64, f64) = (0.01, 0.5);
/// ... while the average is outside the middle fifth of min to max.
const MARGIN: f64 = 0.4;

/// What a [`RedLaw`] is told once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Thresholds of the average, in whatever unit the queue is measured in.
    pub min: f64,
    /// Above `min`.
    pub max: f64,
    /// Of the newest sample, above 0.
    pub weight: f64,
    /// Probability at `max`, at first.
    pub max_p: f64,
    /// Whether the probability goes on rising between `max` and twice that.
    pub gentle: bool,
    /// Whether victims keep a distance of 1/p_b.
    pub wait: bool,
    /// Whether probability is in proportion to size.
    pub bytes: bool,
    /// Bytes of a mean packet.
    pub mean_packet: u64,
    /// Mean packets that the line sends in a second.
    pub packets_per_second: f64,
    /// Struck packets may be marked while p_b is below this.
    pub mark_limit: f64,
    /// Whether `max_p` moves.
    pub adaptive: bool,
}

/// What becomes of a packet that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It joins the queue.
    Pass,
    /// It is struck, and may be marked if it is ECN-capable.
    Notify,
    /// It is to be dropped.
    Drop,
}

/// The law: average, probability, decision. It has no queue, no clock and no dice of its own.
#[derive(Clone, Debug)]
pub struct RedLaw {
    params: Params,
    average: f64,
    max_p: f64,
    /// Packets, and their bytes, since the last victim.
    count: u64,
    count_bytes: u64,
    /// Whether the average was above `min` at the last arrival.
    above: bool,
    /// Since when nothing waits and nothing is transmitted.
    idle_since: Option<Time>,
    /// When `max_p` last moved.
    adapted: Time,
}

impl RedLaw {
    /// An idle line from the start.
    pub fn new(params: Params) -> Self {
        RedLaw {
            max_p: params.max_p,
            params,
            average: 0.0,
            count: 0,
            count_bytes: 0,
            above: false,
            idle_since: Some(Time::ZERO),
            adapted: Time::ZERO,
        }
    }

    /// A packet of `size` bytes arrives while `queue` waits, in the unit of the thresholds.
    pub fn arrive(&mut self, now: Time, queue: u64, size: u64, rng: &mut Rng) -> Verdict {
        self.estimate(now, queue as f64);
        self.count += 1;
        self.count_bytes += size;
        // ns-2's condition: one packet in the queue, or (in bytes) any, is no congestion.
        if self.average < self.params.min || queue <= 1 {
            self.above = false;
            return Verdict::Pass;
        }
        let hard = if self.params.gentle { 2.0 * self.params.max } else { self.params.max };
        if self.average >= hard {
            self.struck();
            return Verdict::Drop;
        }
        if !core::mem::replace(&mut self.above, true) {
            (self.count, self.count_bytes) = (1, size); // victims are counted from the crossing on
            return Verdict::Pass;
        }
        if !rng.chance(self.probability(size)) {
            return Verdict::Pass;
        }
        self.struck();
        if self.base_probability() < self.params.mark_limit { Verdict::Notify } else { Verdict::Drop }
    }

    /// A packet is a victim, of the law or for want of room: the next gap begins.
    pub fn struck(&mut self) {
        (self.count, self.count_bytes) = (0, 0);
    }

    /// Nothing waits, and from `at` on nothing is transmitted either.
    pub fn idle_from(&mut self, at: Time) {
        self.idle_since = Some(at);
    }

    /// The average queue, in the unit of the thresholds.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// The probability at `max`, which adaptive RED moves.
    pub fn max_p(&self) -> f64 {
        self.max_p
    }

    fn estimate(&mut self, now: Time, queue: f64) {
        let keep = 1.0 - self.params.weight;
        if let Some(since) = self.idle_since.take() {
            let missed = libm::floor(self.params.packets_per_second * now.since(since).as_secs_f64());
            // A power is dear, and at a queue that is mostly empty it would be asked for by every packet.
            if self.average > 0.0 && missed > 0.0 {
                self.average *= libm::pow(keep, missed);
            }
        }
        self.average = keep * self.average + self.params.weight * queue;
        if self.params.adaptive && now > self.adapted + ADAPT_INTERVAL {
            self.adapt(now);
        }
    }

    fn adapt(&mut self, now: Time) {
        let Params { min, max, .. } = self.params;
        let (part, (lowest, highest)) = (MARGIN * (max - min), MAX_P_BOUNDS);
        if self.average < min + part && self.max_p > lowest {
            self.max_p *= BETA;
        } else if self.average > max - part && self.max_p < highest {
            self.max_p += ALPHA.min(0.25 * self.max_p);
        } else {
            return;
        }
        self.adapted = now;
    }

    /// p_b: of the average alone.
    fn base_probability(&self) -> f64 {
        let Params { min, max, gentle, .. } = self.params;
        let p = match (self.average < max, gentle) {
            (true, _) => self.max_p * (self.average - min) / (max - min),
            (false, true) => self.max_p + (1.0 - self.max_p) * (self.average - max) / max,
            (false, false) => 1.0,
        };
        p.clamp(0.0, 1.0)
    }

    /// p_a: of the average, of how many packets have come since the last victim, and of this one's size.
    fn probability(&self, size: u64) -> f64 {
        let Params { wait, bytes, mean_packet, .. } = self.params;
        let p_b = self.base_probability();
        let count = if bytes { self.count_bytes / mean_packet } else { self.count };
        let due = count as f64 * p_b;
        let p = match wait {
            true if due < 1.0 => 0.0,
            true if due < 2.0 => p_b / (2.0 - due),
            false if due < 1.0 => p_b / (1.0 - due),
            _ => return 1.0,
        };
        let of_size = if bytes && p < 1.0 { p * size as f64 / mean_packet as f64 } else { p };
        of_size.min(1.0)
    }
}

/// A queue under [`RedLaw`].
pub struct Red<P> {
    law: RedLaw,
    queue: Fifo<P>,
    /// Whether the queue is measured in bytes.
    in_bytes: bool,
    rate: Rate,
    ecn: bool,
    rng: Rng,
}

impl<P: Packet> Red<P> {
    /// Reads its parameters.
    pub fn new(settings: &Settings, rng: Rng) -> Result<Self, Unfit> {
        let queue = Fifo::new(settings)?;
        let in_bytes = matches!(settings.value("limit"), Some(Value::Bytes(_)));
        let threshold = |name| match settings.value(name) {
            Some(Value::Bytes(b)) if in_bytes => Ok(b.0 as f64),
            Some(Value::Packets(n)) if !in_bytes => Ok(*n as f64),
            Some(Value::Bytes(_) | Value::Packets(_)) => {
                let unit = if in_bytes { "bytes, for example 15kB" } else { "packets, for example 15p" };
                Err(Unfit::new(name, alloc::format!("`limit`, `min` and `max` take one unit: write {unit}")))
            }
            other => panic!("{name} is {other:?}"),
        };
        let (min, max) = (threshold("min")?, threshold("max")?);
        if min >= max {
            return Err(Unfit::new("max", "`max` must be above `min`: three times as much is usual"));
        }
        let (rate, mean_packet) = (settings.rate("rate"), settings.bytes("mean_packet").0);
        if rate.0 == 0 {
            return Err(Unfit::new("rate", "no line has rate zero: write the line's, for example 10Mbit/s"));
        }
        if mean_packet == 0 {
            return Err(Unfit::new("mean_packet", "a mean packet has a size: write for example 500B"));
        }
        let adaptive = settings.flag("adaptive");
        let (lowest, highest) = if adaptive { MAX_P_BOUNDS } else { (0.0, 1.0) };
        let packets_per_second = rate.0 as f64 / (8.0 * mean_packet as f64);
        let weight = match within(settings, "weight", 0.0, 1.0)? {
            0.0 => 1.0 - libm::exp(-1.0 / packets_per_second),
            given => given,
        };
        let params = Params {
            min,
            max,
            weight,
            max_p: within(settings, "max_p", lowest, highest)?,
            gentle: settings.flag("gentle"),
            wait: settings.flag("wait"),
            bytes: settings.flag("bytes"),
            mean_packet,
            packets_per_second,
            mark_limit: within(settings, "mark_limit", 0.0, 1.0)?,
            adaptive,
        };
        Ok(Red { law: RedLaw::new(params), queue, in_bytes, rate, ecn: settings.flag("ecn"), rng })
    }
}

impl<P: Packet + Send> Qdisc<P> for Red<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drop: Drops<'_, P>) {
        let Backlog { packets, bytes } = self.queue.backlog();
        let waiting = if self.in_bytes { bytes.0 } else { packets };
        let verdict = self.law.arrive(now, waiting, packet.size().0, &mut self.rng);
        if !self.queue.has_room_for(packet.size()) {
            self.law.struck();
            return drop(packet, DropReason::Full);
        }
        let passes = match verdict {
            Verdict::Pass => true,
            Verdict::Notify => self.ecn && packet.mark_ce(),
            Verdict::Drop => false,
        };
        if !passes {
            return drop(packet, DropReason::Early);
        }
        self.queue.enqueue(now, packet, drop);
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        let packet = self.queue.dequeue(now, drop)?;
        if self.queue.ready_at().is_none() {
            self.law.idle_from(now + self.rate.time_for(packet.size()));
        }
        Some(packet)
    }

    fn ready_at(&self) -> Option<Time> {
        self.queue.ready_at()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        probe(if self.in_bytes { "average_queue" } else { "average_packets" }, self.law.average());
        probe("max_p", self.law.max_p());
    }
}
