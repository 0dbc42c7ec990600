//! A kernel's connection as its sender's cable shows it: from the segments that leave and the ACKs that come, what the
//! simulator knows of its own senders. Offsets are of the stream, as in [`narrows_core::transport::tcp`]: byte 0 is the first
//! byte of data. RTTs are the simulator's own samples ([`Flight`]: exact, under Karn's rule).
//!
//! What the sender thinks is inferred. A timeout: the first outstanding segment is sent again after a silence of at least
//! Linux's smallest RTO, and it is not the only one (that may be a tail loss probe). An entry into fast retransmit: the first
//! retransmission behind everything that was outstanding at the last entry or timeout, with evidence of loss (a duplicate ACK
//! or a SACK block) since `una` last advanced. A reduction on an ECN echo: CWR (RFC 3168 section 6.1.2: after any reduction) since
//! the last of which neither of the two has been seen. The kernel's own count of timeouts, in TCP_INFO, is better where there is one.

use narrows_core::Time;
use narrows_core::transport::tcp::Counters;
use narrows_core::transport::tcp::flight::Flight;
use narrows_core::wire::tcp::{Flags, Length, Payload, Segment, Seq};
use narrows_lab::record::Sight;
use std::time::Duration;

/// TCP_RTO_MIN is 200 ms; the kernel's timers are coarser than our clock.
const RTO_MIN: Duration = Duration::from_millis(195);

/// The sender's side of one connection.
#[derive(Debug, Default)]
pub struct Observed {
    /// Sequence number of offset 0: one behind the SYN's.
    first: Option<Seq>,
    established: bool,
    una: u64,
    max: u64,
    /// Where the FIN is, once it has been sent; it takes one offset.
    fin: Option<u64>,
    window: u16,
    /// By how many bits it is shifted: as the receiver's SYN says, if the sender's said anything.
    scale: u8,
    offered: bool,
    /// What it allows beyond `una`, in bytes.
    allowed: u64,
    /// What was outstanding when fast retransmit was last entered, or the timer fired.
    recover: Option<u64>,
    /// A duplicate ACK or a SACK block has come since `una` advanced.
    evidence: bool,
    /// Fast retransmit has been entered, or the timer fired, and no CWR been sent since.
    untold: bool,
    flight: Flight,
    counters: Counters,
    /// When anything last left or arrived.
    last: Time,
}

impl Observed {
    /// The sender's segment leaves.
    pub fn sent(&mut self, now: Time, segment: &Segment<Length>) {
        if segment.flags.has(Flags::SYN) {
            self.counters.timeouts += self.first.replace(segment.seq.plus(1)).is_some() as u64;
            self.offered = segment.options.window_scale.is_some();
            self.last = now;
            return;
        }
        let Some(first) = self.first else { return };
        let start = offset(first, self.max, segment.seq);
        let len = segment.payload.len() as u64;
        let end = start + len;
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(end);
        }
        if len == 0 {
            return;
        }
        let again = start < self.max;
        let silence = now.since(std::mem::replace(&mut self.last, now));
        self.counters.segments_sent += 1;
        self.counters.retransmissions += again as u64;
        if again && start == self.una && end < self.max && silence >= RTO_MIN {
            self.counters.timeouts += 1;
            (self.recover, self.untold) = (Some(self.max), true);
        } else if again && self.evidence && self.recover.is_none_or(|r| self.una >= r) {
            self.counters.fast_retransmits += 1;
            (self.recover, self.untold) = (Some(self.max), true);
        }
        if segment.flags.has(Flags::CWR) && !std::mem::take(&mut self.untold) {
            self.counters.ecn_reductions += 1;
        }
        self.flight.on_send(now, start, end, self.max > self.una, again);
        self.max = self.max.max(end);
    }

    /// A segment reaches the sender: an RTT sample, if it gives one.
    pub fn received(&mut self, now: Time, segment: &Segment<Length>) -> Option<Duration> {
        let first = self.first.filter(|_| segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::RST))?;
        (self.established, self.last) = (true, now);
        let window = std::mem::replace(&mut self.window, segment.window);
        if segment.flags.has(Flags::SYN) {
            self.scale = segment.options.window_scale.filter(|_| self.offered).unwrap_or(0).min(14);
            self.allowed = u64::from(segment.window);
            return None;
        }
        let ack = offset(first, self.max, segment.ack);
        if ack >= self.una {
            self.allowed = u64::from(segment.window) << self.scale;
        }
        let sacked = !segment.options.sack.is_empty();
        if ack > self.una {
            let sent = self.fin.filter(|fin| ack > *fin).unwrap_or(ack); // the FIN is no data
            let bytes = sent.saturating_sub(self.una);
            let rtt = self.flight.on_ack(now, sent, bytes, false).sent.map(|at| now.since(at));
            (self.una, self.evidence) = (sent.max(self.una), sacked);
            return rtt;
        }
        // RFC 5681 section 2; with SACK the blocks say so, whatever the window does.
        let duplicate = ack == self.una && self.max > self.una && segment.span() == 0;
        if duplicate && (sacked || window == segment.window) {
            self.counters.duplicate_acks += 1;
            self.evidence = true;
        }
        None
    }

    /// What is seen of the sender now.
    pub fn sight(&self) -> Sight {
        let in_flight = self.max - self.una;
        let Observed { established, una, allowed: window, counters, .. } = *self;
        Sight { established, una, in_flight, window, counters }
    }

    /// Where the FIN is: all data lie before it.
    pub fn fin(&self) -> Option<u64> {
        self.fin
    }

    /// First unacknowledged offset.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// End of what was ever sent.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The offset of `seq`, which lies within half the number space of `near`.
fn offset(first: Seq, near: u64, seq: Seq) -> u64 {
    near.saturating_add_signed(seq.ahead_of(first.plus(near as u32)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_core::wire::tcp::SackBlocks;

    const ISS: u32 = u32::MAX - 1500; // the numbers wrap within the second segment

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn data(i: u32) -> Segment<Length> {
        let seq = Seq(ISS).plus(1 + i * 1000);
        Segment { seq, flags: Flags::ACK, payload: Length(1000), ..Segment::default() }
    }

    fn ack(i: u32, sacked: Option<u32>) -> Segment<Length> {
        let at = |i: u32| Seq(ISS).plus(1 + i * 1000);
        let mut segment = Segment { ack: at(i), flags: Flags::ACK, window: 100, ..Segment::default() };
        if let Some(j) = sacked {
            let mut blocks = SackBlocks::default();
            blocks.push(at(j), at(j + 1));
            segment.options.sack = blocks;
        }
        segment
    }

    fn opened() -> Observed {
        let mut o = Observed::default();
        o.sent(ms(0), &Segment { seq: Seq(ISS), flags: Flags::SYN, ..Segment::default() });
        let answer = Segment { ack: Seq(ISS).plus(1), flags: Flags::SYN | Flags::ACK, ..Segment::default() };
        o.received(ms(10), &answer);
        o
    }

    #[test]
    fn a_hole_is_one_fast_retransmit_however_many_segments_fill_it() {
        let mut o = opened();
        (0..8).for_each(|i| o.sent(ms(10 + i as u64), &data(i)));
        assert_eq!(o.received(ms(30), &ack(1, None)), Some(Duration::from_millis(20)));
        for i in [3, 4, 6] {
            assert_eq!(o.received(ms(31), &ack(1, Some(i))), None);
        }
        o.sent(ms(40), &data(1));
        o.sent(ms(41), &data(2));
        o.received(ms(50), &ack(5, Some(6)));
        o.sent(ms(51), &data(5)); // the next hole, of the same window
        assert_eq!(o.received(ms(60), &ack(8, None)), None, "Karn's rule");
        let c = o.counters();
        assert_eq!((c.segments_sent, c.retransmissions, c.duplicate_acks, c.fast_retransmits), (11, 3, 3, 1));
        assert_eq!((o.una(), o.max()), (8000, 8000));
    }

    #[test]
    fn a_timeout_or_a_probe_is_no_fast_retransmit() {
        let mut o = opened();
        (0..3).for_each(|i| o.sent(ms(10), &data(i)));
        o.sent(ms(220), &data(2)); // a tail loss probe
        o.sent(ms(500), &data(0));
        o.received(ms(510), &ack(1, Some(2)));
        o.sent(ms(511), &data(1)); // after the timeout, of the same window
        let c = o.counters();
        assert_eq!((c.retransmissions, c.timeouts, c.fast_retransmits), (3, 1, 0));
    }

    #[test]
    fn cwr_that_no_loss_explains_is_a_reduction_on_an_echo() {
        let told = |i| Segment { flags: Flags::ACK | Flags::CWR, ..data(i) };
        let mut o = opened();
        (0..4).for_each(|i| o.sent(ms(10), &data(i)));
        o.received(ms(30), &ack(1, None));
        o.sent(ms(30), &told(4));
        assert_eq!(o.counters().ecn_reductions, 1);
        o.received(ms(40), &ack(2, Some(4)));
        o.sent(ms(41), &data(2));
        o.sent(ms(42), &told(5)); // tells of the fast retransmit (RFC 3168 section 6.1.2)
        o.received(ms(60), &ack(6, None));
        o.sent(ms(60), &told(6));
        let c = o.counters();
        assert_eq!((c.fast_retransmits, c.ecn_reductions), (1, 2));
    }

    #[test]
    fn a_fin_is_not_data() {
        let mut o = opened();
        o.sent(ms(10), &data(0));
        o.sent(ms(10), &Segment { flags: Flags::ACK | Flags::FIN, payload: Length(500), ..data(1) });
        o.received(ms(20), &Segment { ack: Seq(ISS).plus(1 + 1500 + 1), ..ack(0, None) });
        assert_eq!((o.una(), o.max()), (1500, 1500));
    }
}
