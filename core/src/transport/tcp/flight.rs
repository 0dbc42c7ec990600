//! What is in flight: for each segment sent and not yet acknowledged, when it left and how much had been delivered by then. It
//! yields exact RTT samples under Karn's rule (RFC 6298 section 3), and delivery-rate samples
//! (draft-ietf-ccwg-bbr section 4.1): delivered data over the longer of the send and the ACK interval.
//!
//! Without selective acknowledgments a duplicate ACK is taken as one more segment delivered, as Linux does for Reno
//! (`tcp_add_reno_sack`); the cumulative ACK that follows does not count it again.

use crate::congestion::RateSample;
use crate::time::{Time, nanos};
use crate::units::{Bytes, Rate};
use alloc::collections::VecDeque;
use core::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Segment {
    end: u64,
    sent: Time,
    retransmitted: bool,
    app_limited: bool,
    /// `delivered` and when it was so, as this segment left.
    delivered: u64,
    delivered_at: Time,
    /// When the first segment of this one's send interval left.
    first_sent: Time,
}

/// What an acknowledgment tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acknowledged {
    /// When the newest acknowledged segment left, if all that is acknowledged was sent only once.
    pub sent: Option<Time>,
    /// The delivery-rate sample.
    pub rate: Option<RateSample>,
}

/// The segments in flight.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    segments: VecDeque<Segment>,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    /// Delivered on the word of duplicate ACKs, to be subtracted from the next cumulative one.
    presumed: u64,
    /// The sender ran out of data; until this much is delivered, samples are limited by the application.
    app_limited_until: u64,
}

impl Flight {
    /// A segment from `start` to `end` leaves; `outstanding` tells whether anything was in flight before it.
    #[inline]
    pub fn on_send(&mut self, now: Time, start: u64, end: u64, outstanding: bool, retransmission: bool) {
        if !outstanding {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let segment = Segment {
            end,
            sent: now,
            retransmitted: retransmission,
            app_limited: self.delivered < self.app_limited_until,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
        };
        if !retransmission {
            return self.segments.push_back(segment);
        }
        // Segments end where they ended the first time; one that is cut anew replaces all that it touches.
        let first = self.segments.partition_point(|s| s.end <= start);
        let touched = self.segments.partition_point(|s| s.end < end).saturating_sub(first) + 1;
        self.segments
            .iter_mut()
            .skip(first)
            .take(touched)
            .for_each(|old| *old = Segment { end: old.end, ..segment });
        if self.segments.back().is_none_or(|last| last.end < end) {
            self.segments.push_back(segment);
        }
    }

    /// The sender has no more data to send, with `in_flight` bytes on their way.
    #[inline]
    pub fn on_starved(&mut self, in_flight: u64) {
        self.app_limited_until = self.delivered + in_flight;
    }

    /// A duplicate ACK: one more segment arrived.
    pub fn on_duplicate(&mut self, now: Time, mss: u64, in_flight: u64) {
        if self.presumed + mss <= in_flight {
            self.presumed += mss;
            self.delivered += mss;
            self.delivered_at = now;
        }
    }

    /// Everything below `una` is acknowledged, `acked` bytes of it newly.
    #[inline]
    pub fn on_ack(&mut self, now: Time, una: u64, acked: u64, want_rate: bool) -> Acknowledged {
        let counted = acked.min(self.presumed);
        self.presumed -= counted;
        self.delivered += acked - counted;
        self.delivered_at = now;
        let (mut newest, mut repaired) = (None, false);
        while let Some(s) = self.segments.front()
            && s.end <= una
        {
            repaired |= s.retransmitted;
            newest = self.segments.pop_front();
        }
        let Some(newest) = newest else { return Acknowledged::default() };
        self.first_sent = newest.sent;
        Acknowledged {
            // An ACK that also covers a repair comes when the repair does, however long the rest has waited behind the hole.
            sent: (!repaired).then_some(newest.sent),
            rate: if want_rate { self.sample(now, &newest) } else { None },
        }
    }

    fn sample(&self, now: Time, s: &Segment) -> Option<RateSample> {
        let send = nanos(s.sent.since(s.first_sent));
        let ack = nanos(now.since(s.delivered_at));
        let interval = Duration::from_nanos(send.max(ack));
        let rate = Rate::over(Bytes(self.delivered - s.delivered), interval)?;
        Some(RateSample { rate, interval, app_limited: s.app_limited })
    }

    /// The timer fired: what duplicates said no longer counts.
    pub fn on_timeout(&mut self) {
        self.presumed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_is_sampled_at_its_rate_and_compressed_acks_do_not_inflate_it() {
        let ms = Time::from_millis;
        let mut flight = Flight::default();
        for i in 0..10 {
            flight.on_send(ms(i), i * 1000, (i + 1) * 1000, i > 0, false);
        }
        // The first five are acknowledged as they arrived, 1 ms apart, after 20 ms.
        for i in 0..5 {
            flight.on_ack(ms(20 + i), (i + 1) * 1000, 1000, true);
        }
        for i in 10..15 {
            flight.on_send(ms(10 + i), i * 1000, (i + 1) * 1000, true, false);
        }
        // Then ten more at one instant: the send interval bounds the sample.
        let got = flight.on_ack(ms(40), 15_000, 10_000, true);
        let rate = got.rate.unwrap();
        assert!(rate.rate <= Rate(8_000_000), "no faster than 1000 bytes per ms: {:?}", rate.rate);
        assert_eq!(got.sent, Some(ms(24)));
    }

    #[test]
    fn a_retransmitted_segment_gives_no_rtt() {
        let ms = Time::from_millis;
        let mut flight = Flight::default();
        flight.on_send(ms(0), 0, 1000, false, false);
        flight.on_send(ms(100), 0, 1000, true, true);
        assert_eq!(flight.on_ack(ms(120), 1000, 1000, false).sent, None, "Karn's rule");
    }

    #[test]
    fn duplicates_count_once() {
        let mut flight = Flight::default();
        (0..4).for_each(|i| flight.on_send(Time::ZERO, i * 1000, (i + 1) * 1000, i > 0, false));
        (0..3).for_each(|_| flight.on_duplicate(Time::from_millis(1), 1000, 4000));
        flight.on_ack(Time::from_millis(2), 4000, 4000, false);
        assert_eq!(flight.delivered, 4000);
    }
}
