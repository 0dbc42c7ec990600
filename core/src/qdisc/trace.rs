//! A link driven by a trace of delivery opportunities, in the meaning that mahimahi's mm-link gave them (R. Netravali et al.,
//! "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015; trace format of K. Winstein et al., "Stochastic
//! Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013).
//!
//! The trace is a list of milliseconds since the start, each an opportunity; a repeated number is that many at once. After
//! the last number, which is the period, it begins anew. One opportunity carries 1504 bytes: one packet of 1500 and the 4 bytes
//! that mahimahi counts with each. Small packets share an opportunity; a larger one goes on in the next and leaves when its
//! last byte has gone. What the packets waiting at that instant cannot use is wasted; a packet that arrives at the very instant
//! comes too late.
//!
//! Opportunities are not events here: `credit` is how many bytes the past ones have carried of what waited. A host that asks
//! late, or has a slower line behind this one, thus loses nothing and gains nothing.

use super::{Backlog, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::Bytes;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;

/// `trace:cell.txt`, `{ kind = "trace", at = [0, 3, 3, 10], inner = "fifo:64KiB" }`
pub const ENTRY: Entry = Entry {
    name: "trace",
    summary: "link driven by a trace (mahimahi's): packets of the inner queue leave at given milliseconds",
    parameters: &[Parameter {
        name: "at",
        kind: Kind::List,
        default: "",
        meaning: "milliseconds at which 1504 bytes may leave (1500 and 4 of framing); repeats after the last",
    }],
    contains: true,
};

/// Bytes of one opportunity: mahimahi's.
const OPPORTUNITY: u64 = 1504;
/// What mahimahi counts beside the IP packet: the header of its TUN device.
const FRAMING: u64 = 4;
/// Longest period, in milliseconds: 49 days.
const LONGEST: u64 = u32::MAX as u64;
const MILLISECOND: u64 = 1_000_000;

/// A link driven by a trace.
pub struct Trace<P> {
    /// In milliseconds, not decreasing.
    at: Arc<[u64]>,
    /// The next opportunity, counted from the start of the run through all repetitions.
    next: u64,
    next_at: Time,
    /// Bytes that past opportunities carried of packets still here.
    credit: u64,
    /// The packet that is leaving: taken from `inner` at its first opportunity, still part of the backlog.
    head: Option<P>,
    inner: Box<dyn Qdisc<P>>,
}

fn cost<P: Packet>(packet: &P) -> u64 {
    packet.size().0 + FRAMING
}

impl<P: Packet> Trace<P> {
    /// Reads `at`.
    pub fn new(settings: &Settings, inner: Box<dyn Qdisc<P>>) -> Result<Self, Unfit> {
        let at = settings.list("at");
        let refuse = |advice: alloc::string::String| Err(Unfit::new("at", advice));
        match at.last() {
            None => {
                return refuse(
                    "a trace without an opportunity lets nothing pass: write for example [1]".into(),
                );
            }
            Some(0) => {
                return refuse(
                    "the last number is the period and must not be 0: write for example [0, 1]".into(),
                );
            }
            Some(&last) if last > LONGEST => {
                return refuse(format!(
                    "a period of {last} ms is longer than 49 days: write at most {LONGEST}"
                ));
            }
            Some(_) => {}
        }
        if let Some(i) = at.windows(2).position(|pair| pair[0] > pair[1]) {
            return refuse(format!(
                "times must not decrease, but number {} is {} after {}: sort them",
                i + 2,
                at[i + 1],
                at[i]
            ));
        }
        let mut trace = Trace { at, next: 0, next_at: Time::ZERO, credit: 0, head: None, inner };
        trace.next_at = trace.time_of(0);
        Ok(trace)
    }

    /// Milliseconds after which the trace repeats.
    fn period(&self) -> u64 {
        self.at[self.at.len() - 1]
    }

    /// When the `number`th opportunity comes, counted from 0.
    fn time_of(&self, number: u64) -> Time {
        let (turn, i) = (number / self.at.len() as u64, number % self.at.len() as u64);
        Time::from_nanos((turn * self.period() + self.at[i as usize]).saturating_mul(MILLISECOND))
    }

    /// How many opportunities there are up to and including the millisecond `at`.
    fn count(&self, at: u64) -> u64 {
        let (turn, rest) = (at / self.period(), at % self.period());
        turn * self.at.len() as u64 + self.at.partition_point(|t| *t <= rest) as u64
    }

    /// The first opportunity that is not before `at`.
    fn first_from(&self, at: Time) -> u64 {
        match at.as_nanos().div_ceil(MILLISECOND) {
            0 => 0,
            millisecond => self.count(millisecond - 1),
        }
    }

    /// Uses the opportunities up to `now` for what waits.
    fn advance(&mut self, now: Time) {
        if now < self.next_at {
            return;
        }
        let end = self.count(now.as_nanos() / MILLISECOND);
        let begin = match (&self.head, self.inner.ready_at()) {
            (None, Some(ready)) => self.next.max(self.first_from(ready)),
            _ => self.next,
        };
        let Backlog { packets, bytes } = self.inner.backlog();
        let waiting = bytes.0 + FRAMING * packets + self.head.as_ref().map_or(0, cost);
        let carried = end.saturating_sub(begin).saturating_mul(OPPORTUNITY);
        self.credit = self.credit.saturating_add(carried).min(waiting);
        (self.next, self.next_at) = (end, self.time_of(end));
    }
}

impl<P: Packet + Send> Qdisc<P> for Trace<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        self.advance(now);
        self.inner.enqueue(now, packet, drop);
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P> {
        self.advance(now);
        if self.head.is_none() && self.credit > 0 {
            self.head = self.inner.dequeue(now, drop);
        }
        let cost = self.head.as_ref().map(cost);
        let leaving = cost.is_some_and(|cost| cost <= self.credit);
        if leaving {
            self.credit -= cost.unwrap_or_default();
        }
        // What is not here now cannot use what is left of an opportunity.
        if (leaving || cost.is_none()) && self.inner.ready_at().is_none_or(|ready| ready > now) {
            self.credit = 0;
        }
        if leaving { self.head.take() } else { None }
    }

    fn ready_at(&self) -> Option<Time> {
        let Some(head) = &self.head else {
            let ready = self.inner.ready_at()?;
            let waits = self.credit == 0;
            return Some(if waits { self.time_of(self.next.max(self.first_from(ready))) } else { ready });
        };
        Some(match cost(head).saturating_sub(self.credit) {
            0 => Time::ZERO,
            missing => self.time_of(self.next + missing.div_ceil(OPPORTUNITY) - 1),
        })
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
