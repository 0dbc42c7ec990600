//! What an arriving segment does: RFC 9293 section 3.10.7 in its order, with 4.4BSD's reading of duplicate ACKs.

use super::recovery::{Action, View};
use super::stream::{Buffer, Stored};
use super::{State, Tcp};
use crate::congestion::{Ack, Congestion, DuplicateAck, Signal};
use crate::time::Time;
use crate::units::Bytes;
use crate::wire::tcp::{Flags, Segment, Seq, Timestamps};
use core::time::Duration;

/// 2 MSL (RFC 9293 section 3.4.2 says MSL is 2 minutes; BSD and everyone since uses 30 s).
const TIME_WAIT: Duration = Duration::from_secs(60);

/// RFC 7323 section 5.5: a timestamp older than this no longer counts against a segment.
const PAWS_IDLE: Duration = Duration::from_secs(24 * 24 * 3600);

impl<P: Stored> Tcp<P> {
    #[inline]
    pub(super) fn input(&mut self, now: Time, segment: Segment<P>) {
        match self.state {
            State::Closed => self.refuse(&segment),
            State::Listen => self.input_listen(now, segment),
            State::SynSent => self.input_syn_sent(now, segment),
            _ => self.input_synchronized(now, segment),
        }
    }

    /// A segment for a connection that does not exist: RST, unless it is one (section 3.10.7.1).
    fn refuse(&mut self, segment: &Segment<P>) {
        if !segment.flags.has(Flags::RST) {
            let bare = !segment.flags.has(Flags::ACK);
            let next = segment.seq.plus(segment.span());
            self.rst_wanted = Some(if bare { (Seq(0), Some(next)) } else { (segment.ack, None) });
        }
    }

    fn input_listen(&mut self, now: Time, segment: Segment<P>) {
        if segment.flags.has(Flags::ACK) {
            return self.refuse(&segment); // left from an older connection (section 3.10.7.2)
        }
        if segment.flags.has(Flags::RST) || !segment.flags.has(Flags::SYN) {
            return;
        }
        self.learn_options(now, &segment);
        self.snd_wnd = segment.window as u64;
        self.max_snd_wnd = self.snd_wnd;
        self.state = State::SynReceived;
        self.ack_now = true; // the SYN-ACK
    }

    fn input_syn_sent(&mut self, now: Time, segment: Segment<P>) {
        let acks_syn = segment.flags.has(Flags::ACK);
        if acks_syn && segment.ack != self.seq_of(0) {
            return self.refuse(&segment);
        }
        if segment.flags.has(Flags::RST) {
            if acks_syn {
                self.reach_closed();
            }
            return;
        }
        if !segment.flags.has(Flags::SYN) {
            return;
        }
        self.learn_options(now, &segment);
        self.snd_wnd = segment.window as u64;
        self.max_snd_wnd = self.snd_wnd;
        self.ack_now = true;
        if !acks_syn {
            self.state = State::SynReceived; // simultaneous open: our SYN goes again, with an ACK
            return;
        }
        self.retransmit_at = Time::MAX;
        self.state = State::Established;
        self.start(now);
    }

    /// Takes what a SYN says.
    fn learn_options(&mut self, now: Time, syn: &Segment<P>) {
        let options = &syn.options;
        self.marking.learn(syn.flags, self.retries);
        self.irs = syn.seq;
        // RFC 9293 section 3.7.1: without the option, 536.
        let peer = options.mss.map_or(536, |m| m as u32);
        self.timestamps &= options.timestamps.is_some();
        self.router_states &= options.states.is_some();
        if let Some(ts) = options.timestamps {
            (self.ts_recent, self.ts_recent_at) = (ts.value, now);
        }
        self.mss = self.config.mss.min(peer).saturating_sub(if self.timestamps { 12 } else { 0 }).max(1);
        match options.window_scale.filter(|_| self.config.stack.window_scale) {
            Some(shift) => self.snd_scale = shift.min(14),
            None => self.rcv_scale = 0,
        }
        self.advertised = self.config.receive_buffer.0.min(65_535);
    }

    #[inline]
    fn input_synchronized(&mut self, now: Time, segment: Segment<P>) {
        let flags = segment.flags;
        // Where the segment lies in the peer's stream: rcv_nxt plus a distance that may be negative.
        let expected = self.irs.plus(1).plus(self.rcv_nxt as u32);
        let start = self.rcv_nxt as i64 + segment.seq.ahead_of(expected) as i64;
        let len = segment.payload.len();

        // PAWS (RFC 7323 section 5.3 R1); section 3.2: once negotiated, every segment but a RST carries timestamps.
        let stamp = segment.options.timestamps.filter(|_| self.timestamps);
        let stale = |ts: Timestamps| {
            let older = (ts.value.wrapping_sub(self.ts_recent) as i32) < 0;
            older && now.since(self.ts_recent_at) < PAWS_IDLE
        };
        if self.timestamps && !flags.has(Flags::RST) && stamp.is_none_or(stale) {
            self.counters.paws_rejected += 1;
            self.ack_now = stamp.is_some() || self.ack_now;
            return;
        }

        // Acceptability (RFC 9293 section 3.10.7.4, first).
        let end = start + len as i64 + flags.has(Flags::FIN) as i64;
        let edge = self.advertised.max(self.rcv_nxt) as i64;
        if flags.has(Flags::SYN) && self.state == State::SynReceived && segment.seq == self.irs {
            self.ack_now = true; // the peer repeats its SYN: our SYN-ACK was lost
            self.marking.learn_again(flags);
            if flags.has(Flags::ACK) {
                self.input_ack(now, &segment, start + 1, len); // both opened at once, and this is its SYN-ACK
            }
            return;
        }
        let beyond = start > edge || (start == edge && len > 0 && edge > self.rcv_nxt as i64);
        if beyond || end < self.rcv_nxt as i64 || (len > 0 && end <= self.rcv_nxt as i64) {
            self.counters.unacceptable += 1;
            if flags.has(Flags::RST) {
                return;
            }
            self.ack_now = true;
            // An old duplicate may still carry a useful ACK; BSD goes on with its header only.
            if beyond {
                return;
            }
        }
        // RFC 7323 section 4.3 (2): the newest value of a segment that spans the last ACK sent, so that a delayed ACK echoes
        // the earlier of its two segments.
        if let Some(ts) = stamp.filter(|_| start <= self.last_ack_sent as i64 && !flags.has(Flags::RST)) {
            (self.ts_recent, self.ts_recent_at) = (ts.value, now);
        }
        if flags.has(Flags::RST) {
            // RFC 5961 section 3.2: exactly in place, or challenged.
            if start == self.rcv_nxt as i64 {
                self.reach_closed()
            } else {
                self.ack_now = true
            }
            return;
        }
        if flags.has(Flags::SYN) {
            self.ack_now = true; // RFC 5961 section 4.2: challenge
            return;
        }
        if !flags.has(Flags::ACK) {
            return;
        }
        if !self.input_ack(now, &segment, start, len) {
            return;
        }
        if len > 0 {
            self.input_data(now, &segment, start, len);
        }
        if flags.has(Flags::FIN) && end > 0 {
            self.peer_fin.get_or_insert((end - 1) as u64);
            self.ack_now = true; // early or repeated
            if self.state == State::TimeWait {
                self.time_wait_at = now + TIME_WAIT;
            }
        }
        if let Some(fin) = self.peer_fin
            && self.rcv_nxt == fin
        {
            self.rcv_nxt += 1;
            self.ack_now = true;
            self.state = match self.state {
                State::SynReceived | State::Established => State::CloseWait,
                State::FinWait1 => State::Closing,
                State::FinWait2 => {
                    self.time_wait_at = now + TIME_WAIT;
                    State::TimeWait
                }
                other => other,
            };
        }
    }

    /// The fifth check: the ACK field. `false` if the segment goes no further.
    #[inline]
    fn input_ack(&mut self, now: Time, segment: &Segment<P>, start: i64, len: u32) -> bool {
        let ahead = segment.ack.ahead_of(self.seq_of(self.una));
        if self.state == State::SynReceived && ahead != 0 {
            self.refuse(segment);
            return false;
        }
        let ack = self.una.wrapping_add(ahead as i64 as u64);
        if ahead > 0 && ack > self.max {
            self.counters.unacceptable += 1;
            self.ack_now = true;
            return false;
        }
        if self.state == State::SynReceived {
            self.state = State::Established;
            self.retransmit_at = Time::MAX;
            self.snd_wnd = (segment.window as u64) << self.snd_scale;
            self.start(now);
        }
        if self.router_states
            && let Some(states) = segment.options.states.as_ref().filter(|s| ahead >= 0 && !s.is_empty())
        {
            self.controller.on_router_states(now, states);
        }
        let window = (segment.window as u64) << self.snd_scale;
        let echo = self.echo(now, segment);
        if ahead <= 0 {
            if ahead == 0
                && len == 0
                && window == self.snd_wnd
                && !segment.flags.has(Flags::FIN)
                && self.max > self.una
                && self.persist_at == Time::MAX
            {
                self.input_duplicate(now, echo);
            } else {
                self.recovery.on_other();
            }
            if ahead == 0 && self.marking.heard(segment.flags) {
                self.input_echo(now, ack);
            }
        } else {
            self.input_new_ack(now, ack, echo, self.marking.heard(segment.flags));
        }
        // Window update (section 3.10.7.4): from a segment newer than the last that did.
        let start = start.max(0) as u64;
        if ahead >= 0 && (self.wl1 < start || (self.wl1 == start && self.wl2 <= ack)) {
            (self.snd_wnd, self.wl1, self.wl2) = (window, start, ack);
            self.max_snd_wnd = self.max_snd_wnd.max(window);
            if window > 0 {
                self.persist_at = Time::MAX;
            }
        }
        true
    }

    /// The RTT by timestamp echo, in the resolution of the clock that stamped it.
    #[inline]
    fn echo(&self, now: Time, segment: &Segment<P>) -> Option<Duration> {
        let ts = segment.options.timestamps.filter(|ts| self.timestamps && ts.echo != 0)?;
        let elapsed = self.timestamp_now(now).wrapping_sub(ts.echo);
        Some(Duration::from_nanos(elapsed as u64 * self.timestamp_clock.period()))
    }

    pub(super) fn view(&self, now: Time) -> View {
        let flight = if self.config.stack.halve_window {
            self.snd_wnd.min(self.controller.congestion_window().0)
        } else {
            self.nxt - self.una // after a timeout, what has been sent again so far
        };
        View { now, una: self.una, max: self.max, flight: Bytes(flight), mss: self.mss as u64 }
    }

    fn input_duplicate(&mut self, now: Time, echo: Option<Duration>) {
        self.counters.duplicate_acks += 1;
        if self.controller.wants_rate_samples() {
            self.flight.on_duplicate(now, self.mss as u64, self.max - self.una);
        }
        let view = self.view(now);
        let reduced = self.marking.covers(self.una);
        let action = self.recovery.on_duplicate(view, reduced, &mut *self.controller);
        let count = self.recovery.duplicates();
        self.controller.on_duplicate_ack(&DuplicateAck { now, count, una: self.una, max: self.max, echo });
        if action == Action::ResendFirst {
            self.counters.fast_retransmits += 1;
            if !reduced {
                self.marking.on_reduction(self.max, false);
            }
            self.resend_first = true;
            self.retransmit_at = Time::MAX; // set afresh as the segment leaves, as in BSD
            if !self.recovery.recovering() {
                self.nxt = self.una; // Tahoe: slow start goes over all of it again
            }
        }
    }

    /// An ACK for `ack` echoes a mark: once per window of data that counts as a loss, of which nothing must be sent again (RFC 3168
    /// section 6.1.2).
    fn input_echo(&mut self, now: Time, ack: u64) {
        if self.recovery.recovering() || !self.marking.is_news(ack) {
            return; // the peer repeats it until it hears CWR
        }
        let before = self.controller.congestion_window();
        // It is the congestion window that is halved: what recovery let out beyond it does not count.
        let flight = self.view(now).flight.min(before);
        self.controller.on_congestion(&Congestion { now, signal: Signal::Ecn, flight });
        if self.controller.congestion_window() > before {
            self.controller.set_congestion_window(before);
        }
        self.counters.ecn_reductions += 1;
        self.marking.on_reduction(self.max, true);
        if before.0 <= self.mss as u64 {
            // A window of one segment cannot be halved: the retransmission timer is set afresh, and nothing leaves before.
            self.silent_until = self.rto.expiry(now);
            if self.retransmit_at != Time::MAX {
                self.retransmit_at = self.silent_until;
            }
        }
    }

    #[inline]
    fn input_new_ack(&mut self, now: Time, ack: u64, echo: Option<Duration>, ce: bool) {
        let acked = ack - self.una;
        let view = self.view(now);
        let (action, restart_timer) = self.recovery.on_ack(view, ack, &mut *self.controller);
        self.resend_first = action == Action::ResendFirst;
        if ce {
            self.input_echo(now, ack);
        }

        let told = self.flight.on_ack(now, ack, acked, self.controller.wants_rate_samples());
        let rtt = told.sent.map(|sent| now.since(sent));
        if let Some(rtt) = rtt {
            self.last_rtt = Some(rtt);
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |m| m.min(rtt)));
        }
        // BSD with timestamps takes a sample of every ACK, by its echo. Otherwise what was sent once is timed exactly, and what
        // was sent again by its echo, if there is one (RFC 7323 section 4.1): without, the back-off would outlast the repair.
        match (self.config.stack.rto_in_ticks, echo, told.sent) {
            (true, Some(echo), _) | (_, Some(echo), None) => self.rto.sample(now, now - echo),
            (_, _, Some(sent)) => self.rto.sample(now, sent),
            _ => {}
        }
        let round_start = ack >= self.round_end;
        if round_start {
            self.round_end = self.max;
        }
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.probed &= ack < self.max;
        self.outgoing.release(ack.min(self.written));
        self.retries = 0;
        self.persist_at = Time::MAX; // set again if the window is still closed to what is left
        if ack == self.max {
            self.retransmit_at = Time::MAX;
        } else if restart_timer {
            self.retransmit_at = self.rto.expiry(now);
        }
        self.controller.on_ack(&Ack {
            now,
            acked: Bytes(acked),
            in_flight: Bytes(self.nxt - ack),
            una: ack,
            max: self.max,
            rtt,
            echo,
            min_rtt: self.min_rtt,
            round_start,
            in_recovery: self.recovery.recovering(),
            window_limited: self.window_limited,
            ce,
            rate: told.rate,
        });
        if self.fin && ack > self.written {
            self.state = match self.state {
                State::FinWait1 => State::FinWait2,
                State::Closing => {
                    self.time_wait_at = now + TIME_WAIT;
                    State::TimeWait
                }
                State::LastAck => return self.reach_closed(),
                other => other,
            };
        }
    }

    /// The seventh step: data. In order it is acknowledged with a delay; anything else at once (RFC 5681 section 4.2).
    #[inline]
    fn input_data(&mut self, now: Time, segment: &Segment<P>, start: i64, len: u32) {
        // Trim what is before the window and behind it.
        let skip = (self.rcv_nxt as i64 - start).clamp(0, len as i64) as u32;
        let at = (start + skip as i64) as u64;
        // Nothing follows a FIN (RFC 9293 section 3.10.7.4, seventh).
        let edge = self.advertised.max(self.rcv_nxt).min(self.peer_fin.unwrap_or(u64::MAX));
        let room = edge.saturating_sub(at);
        let keep = ((len - skip) as u64).min(room) as u32;
        if keep < len - skip || keep == 0 {
            self.ack_now = true;
        }
        if keep == 0 {
            return;
        }
        self.marking.on_data(segment.flags, segment.ecn); // only of what the window has room for (RFC 3168 section 6.1.5)
        self.incoming.write(at, &segment.payload, skip, keep);
        if at == self.rcv_nxt && self.early.is_empty() {
            self.rcv_nxt += keep as u64;
            let slid = self.rcv_nxt - self.last_ack_sent;
            if slid >= self.told_at_once() { self.ack_now = true } else { self.delay_ack(now) }
        } else {
            self.early.insert(at, at + keep as u64);
            self.rcv_nxt = self.early.advance(self.rcv_nxt);
            self.ack_now = true;
        }
        if self.config.reads_at_once {
            self.read = self.delivered();
            self.incoming.release(self.read);
        }
    }
}
