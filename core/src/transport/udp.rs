//! Datagrams at a constant bit rate, on and off by a schedule, and the sink that counts what is missing.

use super::Endpoint;
use crate::packet::IPV4_HEADER;
use crate::time::Time;
use crate::units::Rate;
use crate::wire::udp::{HEADER, Message};
use alloc::vec::Vec;
use core::time::Duration;

/// A constant-bit-rate source: while it is on, packet k leaves exactly k packet times after the on period began.
#[derive(Clone, Debug)]
pub struct Source {
    rate: Rate,
    size: u32,
    /// On periods: from, until; in order of time and disjoint.
    periods: Vec<(Time, Time)>,
    period: usize,
    next: Time,
    carry: u64,
    sent: u64,
}

impl Source {
    /// `rate` counts whole IP packets of `size` bytes. `periods` are sorted and disjoint; the last may end at [`Time::MAX`].
    pub fn new(rate: Rate, size: u32, periods: Vec<(Time, Time)>) -> Source {
        let next = periods.first().map_or(Time::MAX, |p| p.0);
        Source { rate, size, periods, period: 0, next, carry: 0, sent: 0 }
    }

    /// Datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

impl Endpoint<Message> for Source {
    fn receive(&mut self, _now: Time, _packet: Message) {}

    fn transmit(&mut self, now: Time) -> Option<Message> {
        if self.next > now {
            return None;
        }
        let message = Message {
            source: 9,
            destination: 9,
            length: self.size - IPV4_HEADER - HEADER,
            number: self.sent,
        };
        self.sent += 1;
        self.next += Duration::from_nanos(self.rate.transmit(self.size, &mut self.carry));
        while self.next >= self.periods[self.period].1 {
            self.period += 1;
            let Some(&(from, _)) = self.periods.get(self.period) else {
                self.next = Time::MAX;
                break;
            };
            (self.next, self.carry) = (self.next.max(from), 0);
        }
        Some(message)
    }

    fn wake_at(&self) -> Option<Time> {
        (self.next != Time::MAX).then_some(self.next)
    }
}

/// Counts what arrives.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    received: u64,
    bytes: u64,
    highest: Option<u64>,
}

impl Sink {
    /// Datagrams received.
    pub fn received(&self) -> u64 {
        self.received
    }
    /// Their payload bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Datagrams known to be missing: numbers skipped below the highest seen.
    pub fn missing(&self) -> u64 {
        self.highest.map_or(0, |h| h + 1 - self.received)
    }
}

impl Endpoint<Message> for Sink {
    fn receive(&mut self, _now: Time, packet: Message) {
        self.received += 1;
        self.bytes += packet.length as u64;
        self.highest = Some(self.highest.map_or(packet.number, |h| h.max(packet.number)));
    }
    fn transmit(&mut self, _now: Time) -> Option<Message> {
        None
    }
    fn wake_at(&self) -> Option<Time> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_megabit_with_a_pause_sends_the_exact_count() {
        let s = Time::from_millis;
        let mut source =
            Source::new(Rate(20_000_000), 1500, alloc::vec![(s(0), s(3000)), (s(6000), s(9000))]);
        let (mut sink, mut when) = (Sink::default(), Vec::new());
        while let Some(at) = source.wake_at() {
            let m = source.transmit(at).unwrap();
            when.push(at);
            if when.len() % 10 != 3 {
                sink.receive(at, m);
            }
        }
        assert_eq!(source.sent(), 2 * 5000, "3 s of 600 us each, twice");
        assert!(when.iter().all(|t| *t < s(3000) || (*t >= s(6000) && *t < s(9000))));
        assert_eq!(sink.missing(), 1000);
    }
}
