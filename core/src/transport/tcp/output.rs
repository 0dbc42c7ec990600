//! What may be sent now: 4.4BSD's `tcp_output`, one segment per call, and the timers that lead to it.

use super::stream::{Buffer, Stored};
use super::{State, Tcp, pace};
use crate::congestion::Sent;
use crate::packet::Ecn;
use crate::time::Time;
use crate::units::Bytes;
use crate::wire::tcp::{Flags, Options, Segment, Seq};
use alloc::boxed::Box;
use core::time::Duration;

/// The persist timer waits at most this long: 60 s, as in 4.4BSD.
pub(super) const PERSIST_MAX: Duration = Duration::from_secs(60);

impl<P: Stored> Tcp<P> {
    #[inline]
    pub(super) fn run_timers(&mut self, now: Time) {
        if self.retransmit_at <= now {
            self.retransmit_timeout(now);
        }
        if self.delayed_ack_at <= now {
            self.ack_now = true;
            self.delayed_ack_at = Time::MAX;
        }
        if self.time_wait_at <= now {
            self.reach_closed();
        }
    }

    fn retransmit_timeout(&mut self, now: Time) {
        self.retransmit_at = Time::MAX;
        if self.retries >= self.config.stack.max_retransmits {
            return self.abort();
        }
        self.retries += 1;
        self.counters.timeouts += 1;
        self.rto.back_off();
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.ack_now = true;
            return;
        }
        let mut view = self.view(now);
        if !self.config.stack.halve_window {
            // RFC 5681 section 3.1: held constant when the segment has timed out before; and (4) is an upper bound: within
            // recovery ssthresh has been halved already, and what is outstanding is mostly what recovery has delivered
            // behind the first hole, half of which may be many times the path.
            let held = Bytes(self.controller.ssthresh().0.saturating_mul(2));
            view.flight = match (self.retries > 1, self.recovery.recovering()) {
                (true, _) => held,
                (false, true) => view.flight.min(held),
                (false, false) => view.flight,
            };
        }
        if self.marking.covers(self.una) {
            // RFC 3168 section 6.1.2: ssthresh does not fall twice for one window of data.
            view.flight = Bytes(self.controller.ssthresh().0.saturating_mul(2));
        }
        self.recovery.on_timeout(view, &mut *self.controller);
        self.marking.on_reduction(self.max, false);
        self.flight.on_timeout();
        self.nxt = self.una; // go back N; the receiver's reassembly lets ACKs jump
        self.resend_first = false;
        self.retransmit_at = self.rto.expiry(now);
    }

    #[inline]
    pub(super) fn output(&mut self, now: Time) -> Option<Segment<P>> {
        self.send_at = Time::MAX;
        if let Some((seq, ack)) = self.rst_wanted.take() {
            let mut reset = self.segment(now, seq, Flags::RST, P::default());
            if let Some(ack) = ack {
                (reset.ack, reset.flags) = (ack, Flags::RST | Flags::ACK);
            }
            return Some(reset);
        }
        match self.state {
            State::Closed | State::Listen => return None,
            State::SynSent | State::SynReceived => return self.output_syn(now),
            _ => {}
        }
        if core::mem::take(&mut self.resend_first) && self.una < self.max {
            let len = self.sendable(self.una).min(self.mss as u64).min(self.max - self.una) as u32;
            return Some(self.data(now, self.una, len));
        }
        if self.persist_at <= now {
            return Some(self.persist(now));
        }
        if self.snd_wnd == 0 && self.una < self.written && self.retransmit_at != Time::MAX {
            // The peer took its window back, or RFC 7323 section 2.4's rounding did: nothing may leave, so probe (4.4BSD).
            self.nxt = self.una;
            self.retransmit_at = Time::MAX;
        }
        if let Some(segment) = self.output_data(now) {
            return Some(segment);
        }
        if !self.ack_now {
            return None;
        }
        Some(self.segment(now, self.seq_of(self.max), Flags::ACK, P::default()))
    }

    fn output_syn(&mut self, now: Time) -> Option<Segment<P>> {
        if !core::mem::take(&mut self.ack_now) {
            return None;
        }
        let answer = self.state == State::SynReceived;
        let flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let flags = flags | self.marking.setup(answer, self.retries);
        let mut segment = self.segment(now, Seq(self.config.iss), flags, P::default());
        segment.window = self.config.receive_buffer.0.min(65_535) as u16; // a SYN's window is never scaled
        segment.options.mss = Some(self.config.mss.min(u16::MAX as u32) as u16);
        // A SYN-ACK offers only what the SYN offered.
        let scaled = self.config.stack.window_scale && (!answer || self.rcv_scale > 0 || self.snd_scale > 0);
        segment.options.window_scale = scaled.then_some(self.rcv_scale);
        if let Some(ts) = &mut segment.options.timestamps
            && !answer
        {
            ts.echo = 0;
        }
        self.last_sent = now;
        self.retransmit_at = self.rto.expiry(now);
        Some(segment)
    }

    /// Data and FIN from offset `from` that the buffers hold: bytes to the end of what may be outstanding.
    #[inline]
    fn sendable(&self, from: u64) -> u64 {
        self.written.min(self.una + self.config.send_buffer.0).saturating_sub(from)
    }

    #[inline]
    fn output_data(&mut self, now: Time) -> Option<Segment<P>> {
        let mss = self.mss as u64;
        let idle = self.max == self.una;
        if idle && self.max > 0 && self.written > self.nxt && now.since(self.last_sent) >= self.rto.timeout()
        {
            self.controller.catch_up(now);
            // Nothing in flight for a timeout: the old window no longer describes the path (4.4BSD; RFC 5681 section 4.1).
            let initial = Bytes(self.config.stack.initial_window as u64 * mss);
            if self.controller.congestion_window() > initial {
                self.controller.set_congestion_window(initial);
            }
        }
        let allowed = self.controller.window().0;
        let window = self.snd_wnd.min(allowed);
        let offset = self.nxt - self.una;
        let available = self.sendable(self.nxt);
        let len = available.min(window.saturating_sub(offset)).min(mss);
        let fin_due = self.fin && self.nxt + len == self.written && !self.fin_sent_and_not_lost();

        // BSD's silly-window avoidance: a full segment, the last of the data when nothing is outstanding, half of the largest
        // window the peer ever offered, or something already sent.
        let worth = len > 0
            && (len == mss
                || (len == available && (idle || self.fin))
                || len >= self.max_snd_wnd / 2
                || self.nxt < self.max);
        if !(worth || fin_due && len == available) {
            self.window_limited = available > len && allowed <= self.snd_wnd;
            if available > 0 && self.retransmit_at == Time::MAX && self.persist_at == Time::MAX {
                self.probes = 0;
                self.set_persist(now); // a closed or silly window and nothing in flight: no ACK will open it
            }
            if available == 0 {
                self.flight.on_starved(offset);
            }
            return None;
        }
        let rate = self.controller.pacing_rate().filter(|rate| rate.0 > 0);
        let paced_until = rate.map_or(Time::ZERO, |_| self.paced_until);
        let at = paced_until.max(self.silent_until);
        if at > now {
            self.send_at = at;
            return None;
        }
        if let Some(rate) = rate {
            self.paced_until = now + pace(rate, len as u32 + 40);
        }
        Some(self.data(now, self.nxt, len as u32))
    }

    #[inline]
    fn fin_sent_and_not_lost(&self) -> bool {
        self.nxt > self.written
    }

    /// A segment with `len` bytes at offset `at`, and the FIN if it follows them.
    fn data(&mut self, now: Time, at: u64, len: u32) -> Segment<P> {
        let end = at + len as u64;
        let fin = self.fin && end == self.written;
        let next = end + fin as u64;
        let sent = self.max - self.probed as u64;
        let retransmission = at < sent;
        let payload = self.outgoing.copy(at, len);
        let mut flags = Flags::ACK;
        if fin {
            flags = flags | Flags::FIN;
            self.state = match self.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
        if end == self.written {
            flags = flags | Flags::PSH;
        }
        if len > 0 {
            self.counters.segments_sent += 1;
            self.counters.retransmissions += retransmission as u64;
        }
        self.flight.on_send(now, at, next, sent > self.una, retransmission);
        self.nxt = self.nxt.max(next);
        self.max = self.max.max(next);
        self.probed &= next < self.max;
        self.last_sent = now;
        if self.retransmit_at == Time::MAX && self.persist_at == Time::MAX {
            self.retransmit_at = self.rto.expiry(now);
        }
        let in_flight = Bytes(self.nxt - self.una);
        self.controller.on_send(&Sent { now, bytes: Bytes(len as u64), in_flight, retransmission });
        let mut ecn = Ecn::NotEct;
        if len > 0 && !retransmission {
            let (told, capable) = self.marking.on_new_data();
            (flags, ecn) = (flags | told, capable);
        }
        Segment { ecn, ..self.segment(now, self.seq_of(at), flags, payload) }
    }

    fn set_persist(&mut self, now: Time) {
        let wait = (self.rto.timeout() * (1 << self.probes.min(6)))
            .clamp(self.config.stack.persist_min, PERSIST_MAX);
        self.persist_at = now + wait;
    }

    /// The persist timer: what a silly window has room for, or one byte beyond a closed one (RFC 9293 section 3.8.6.1). That
    /// byte stays unsent in the books until the peer takes it.
    fn persist(&mut self, now: Time) -> Segment<P> {
        self.persist_at = Time::MAX;
        let room = self.sendable(self.una).min(self.snd_wnd).min(self.mss as u64) as u32;
        if room > 0 {
            return self.data(now, self.una, room);
        }
        self.counters.window_probes += 1;
        self.probes += 1;
        self.set_persist(now);
        let at = self.una;
        let payload = self.outgoing.copy(at, 1);
        if self.max == at {
            (self.max, self.probed) = (at + 1, true);
        }
        self.segment(now, self.seq_of(at), Flags::ACK, payload)
    }

    /// Builds a segment; it carries the current ACK and window, so a pending ACK is done with it.
    #[inline]
    fn segment(&mut self, now: Time, seq: Seq, flags: Flags, payload: P) -> Segment<P> {
        let mut segment = Segment {
            source: self.config.ports.0,
            destination: self.config.ports.1,
            seq,
            flags,
            options: Options { timestamps: self.timestamp_option(now), ..Options::default() },
            payload,
            ..Segment::default()
        };
        if flags.has(Flags::ACK) {
            segment.ack = self.irs.plus(1).plus(self.rcv_nxt as u32);
            segment.flags = flags | self.marking.echo();
            segment.window = self.window_field();
            self.last_ack_sent = self.rcv_nxt;
            self.ack_now = false;
            self.delayed_ack_at = Time::MAX;
        }
        // Not beside data: its segments are as large as the path takes.
        if self.router_states && segment.payload.is_empty() && !flags.has(Flags::RST) {
            invite(&mut segment.options);
        }
        segment
    }

    /// What this end can take, scaled; the right edge never moves left, and no silly window is offered.
    #[inline]
    fn window_field(&mut self) -> u16 {
        let buffer = self.config.receive_buffer.0;
        let mut free = buffer.saturating_sub(self.delivered() - self.read);
        if free < buffer / 4 && free < self.mss as u64 {
            free = 0;
        }
        let promised = self.advertised.saturating_sub(self.rcv_nxt);
        let window = free.max(promised);
        let field = (window >> self.rcv_scale).min(65_535);
        self.advertised = self.advertised.max(self.rcv_nxt + (field << self.rcv_scale));
        field as u16
    }
}

/// Routers may add their states: see [`crate::wire::tcp::states`]. Rare, and so a call.
#[cold]
fn invite(options: &mut Options) {
    options.states = Some(Box::default());
}
