//! TCP (RFC 9293), a real one: handshake with options, sliding window with window scale, reassembly, delayed and immediate
//! ACKs, retransmission, persist, FIN and RST, PAWS. The same code moves lengths in the simulator and bytes on real hosts.
//!
//! | file | what it holds |
//! |---|---|
//! | [`stack`] | which parts and constants make a BSD, a standard TCP, ... : data |
//! | `input` | what an arriving segment does (RFC 9293 section 3.10.7, in its order) |
//! | `output` | what may be sent now (4.4BSD's `tcp_output`) |
//! | [`recovery`] | duplicate ACKs to repair: Tahoe, Reno, NewReno |
//! | [`rto`] | RTT estimators and retransmission clocks |
//! | [`flight`] | what is in flight: RTT and delivery-rate samples |
//! | [`ecn`] | explicit congestion notification (RFC 3168) |
//! | [`reassembly`], [`stream`] | where early and unsent data wait |
//!
//! Inside, positions are 64-bit stream offsets (`una`, `nxt`, `max`): byte 0 is the first byte of data, its sequence number
//! `iss + 1`; a FIN takes one offset behind the last byte. Sequence numbers modulo 2^32 exist only at the edge.
//!
//! Deviations: no urgent data, no keep-alive.

pub mod ecn;
pub mod flight;
mod input;
mod output;
pub mod reassembly;
pub mod recovery;
pub mod rto;
pub mod stack;
pub mod stream;
#[cfg(test)]
mod tests;

use super::Endpoint;
use crate::congestion::{Controller, Start};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::tcp::{Length, Segment, Seq, Timestamps};
use alloc::boxed::Box;
use core::time::Duration;
use ecn::Marking;
use flight::Flight;
use reassembly::Reassembly;
use recovery::Recovery;
use rto::{Rto, Ticks};
use stack::{DelayedAck, Stack};
use stream::{Buffer, Stored};

/// What a connection's end is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The stack.
    pub stack: Stack,
    /// The MSS option's value: largest segment without options this end accepts and sends (MTU - 40 for IPv4).
    pub mss: u32,
    /// The receive buffer: the largest window this end advertises.
    pub receive_buffer: Bytes,
    /// The send buffer: what may be written and not yet acknowledged.
    pub send_buffer: Bytes,
    /// Phase of this machine's periodic timers.
    pub timer_phase: Duration,
    /// Initial sequence number.
    pub iss: u32,
    /// Local and remote port.
    pub ports: (u16, u16),
    /// Whether the application takes data as soon as it is in order; otherwise it calls [`Tcp::read`].
    pub reads_at_once: bool,
}

/// RFC 9293 section 3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the RFC's own names
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// What has been counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Segments with data sent.
    pub segments_sent: u64,
    /// Of these, sent before.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Entries into fast retransmit.
    pub fast_retransmits: u64,
    /// Reductions on an ECN echo.
    pub ecn_reductions: u64,
    /// Duplicate ACKs received.
    pub duplicate_acks: u64,
    /// Segments refused by PAWS (RFC 7323 section 5).
    pub paws_rejected: u64,
    /// Zero-window probes sent.
    pub window_probes: u64,
    /// Segments outside the window, or otherwise unacceptable.
    pub unacceptable: u64,
}

/// One end of a TCP connection.
pub struct Tcp<P: Stored = Length> {
    config: Config,
    state: State,
    controller: Box<dyn Controller>,
    recovery: Recovery,
    rto: Rto,
    counters: Counters,

    // The sender: stream offsets.
    una: u64,
    nxt: u64,
    max: u64,
    /// The last byte below `max` was only a zero-window probe's: it is acceptable in an ACK, and not counted as sent.
    probed: bool,
    /// Written by the application so far.
    written: u64,
    /// No data follows `written`.
    fin: bool,
    snd_wnd: u64,
    /// RFC 9293 snd.wl1 and snd.wl2: which segment last updated `snd_wnd`.
    wl1: u64,
    wl2: u64,
    /// Largest window ever seen, for silly-window avoidance.
    max_snd_wnd: u64,
    /// Payload of a full segment: the smaller of both ends' MSS, less the options every segment carries.
    mss: u32,
    /// Recovery asked for the first unacknowledged segment, whatever the window.
    resend_first: bool,
    window_limited: bool,
    /// When new data may leave, if the controller paces.
    paced_until: Time,
    /// When anything may leave, after a mark was echoed to a window of one segment.
    silent_until: Time,
    /// The one of these that something waits for; otherwise `Time::MAX`.
    send_at: Time,
    last_sent: Time,
    outgoing: P::Buffer,
    flight: Flight,
    min_rtt: Option<Duration>,
    last_rtt: Option<Duration>,
    /// End of the round trip being counted (`Ack::round_start`).
    round_end: u64,

    // The receiver.
    irs: Seq,
    rcv_nxt: u64,
    /// Right edge of the window as last advertised.
    advertised: u64,
    last_ack_sent: u64,
    /// Read by the application so far.
    read: u64,
    /// Where the peer's FIN is.
    peer_fin: Option<u64>,
    early: Reassembly,
    incoming: P::Buffer,
    ack_now: bool,
    /// Sequence number of a RST to send, and what it acknowledges if it must.
    rst_wanted: Option<(Seq, Option<Seq>)>,

    // Options, as negotiated.
    marking: Marking,
    snd_scale: u8,
    rcv_scale: u8,
    timestamps: bool,
    router_states: bool,
    timestamp_clock: Ticks,
    ts_recent: u32,
    ts_recent_at: Time,

    // Timers; Time::MAX is "not set".
    retransmit_at: Time,
    /// Retransmission timeouts since the peer last acknowledged something new.
    retries: u32,
    persist_at: Time,
    /// Zero-window probes since the window closed.
    probes: u32,
    delayed_ack_at: Time,
    time_wait_at: Time,
}

impl<P: Stored> Tcp<P> {
    /// An end that opens the connection: its SYN is what [`Endpoint::transmit`] gives first.
    pub fn connect(config: Config, controller: Box<dyn Controller>) -> Self {
        Self::new(config, controller, State::SynSent)
    }

    /// An end that waits for a SYN.
    pub fn listen(config: Config, controller: Box<dyn Controller>) -> Self {
        Self::new(config, controller, State::Listen)
    }

    fn new(config: Config, controller: Box<dyn Controller>, state: State) -> Self {
        let stack = config.stack;
        let clock = controller.timestamp_clock().unwrap_or(stack.timestamp_clock);
        let bounds = stack.rto_bounds;
        let slow = Ticks::new(stack.slow_tick, config.timer_phase);
        let rto = if stack.rto_in_ticks { Rto::ticks(slow, bounds) } else { Rto::rfc6298(bounds) };
        let rcv_scale = if stack.window_scale { scale_for(config.receive_buffer) } else { 0 };
        Tcp {
            recovery: Recovery::new(stack.recovery, stack.duplicate_threshold),
            rto,
            state,
            controller,
            counters: Counters::default(),
            una: 0,
            nxt: 0,
            max: 0,
            probed: false,
            written: 0,
            fin: false,
            snd_wnd: 0,
            wl1: 0,
            wl2: 0,
            max_snd_wnd: 0,
            mss: config.mss,
            resend_first: false,
            window_limited: false,
            paced_until: Time::ZERO,
            silent_until: Time::ZERO,
            send_at: Time::MAX,
            last_sent: Time::ZERO,
            outgoing: P::Buffer::default(),
            flight: Flight::default(),
            min_rtt: None,
            last_rtt: None,
            round_end: 0,
            irs: Seq(0),
            rcv_nxt: 0,
            advertised: 0,
            last_ack_sent: 0,
            read: 0,
            peer_fin: None,
            early: Reassembly::default(),
            incoming: P::Buffer::default(),
            ack_now: state == State::SynSent,
            rst_wanted: None,
            marking: Marking::new(stack.ecn),
            snd_scale: 0,
            rcv_scale,
            timestamps: stack.timestamps,
            router_states: stack.router_states,
            timestamp_clock: Ticks::new(clock, config.timer_phase),
            ts_recent: 0,
            ts_recent_at: Time::ZERO,
            retransmit_at: Time::MAX,
            retries: 0,
            persist_at: Time::MAX,
            probes: 0,
            delayed_ack_at: Time::MAX,
            time_wait_at: Time::MAX,
            config,
        }
    }

    /// The application writes. Returns how many bytes were taken: no more than the send buffer has room for.
    pub fn write(&mut self, data: &P) -> u32 {
        if self.fin {
            return 0;
        }
        let taken = (data.len() as u64).min(self.room()) as u32;
        self.outgoing.write(self.written, data, 0, taken);
        self.written += taken as u64;
        taken
    }

    /// Bytes that the send buffer has room for.
    pub fn room(&self) -> u64 {
        self.config.send_buffer.0.saturating_sub(self.written - self.una.min(self.written))
    }

    /// The application has nothing more to write: a FIN follows the data.
    pub fn close(&mut self) {
        self.fin = true;
    }

    /// The application takes up to `most` bytes that arrived in order.
    pub fn read(&mut self, most: u32) -> P {
        let n = (self.readable().min(most as u64)) as u32;
        let data = self.incoming.copy(self.read, n);
        self.read += n as u64;
        self.incoming.release(self.read);
        let edge = self.read + self.config.receive_buffer.0;
        if edge.saturating_sub(self.advertised) >= self.told_at_once() {
            self.ack_now |= self.is_synchronized() && self.peer_fin.is_none();
        }
        data
    }

    /// Gives the connection up; a RST tells the peer.
    pub fn abort(&mut self) {
        if self.is_synchronized() {
            // Not nxt, which a timeout takes back: the peer would ignore what lies before its window.
            self.rst_wanted = Some((self.seq_of(self.max), None));
        }
        self.reach_closed();
    }

    /// Bytes in order that the application has not taken.
    pub fn readable(&self) -> u64 {
        self.delivered() - self.read
    }

    /// Bytes of data received in order so far.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.rcv_nxt - self.peer_fin.is_some_and(|fin| self.rcv_nxt > fin) as u64
    }

    /// Bytes of data acknowledged by the peer so far.
    #[inline]
    pub fn acknowledged(&self) -> u64 {
        self.una.min(self.written)
    }

    /// Bytes the application has written, or offered, so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// First unacknowledged stream offset.
    #[inline]
    pub fn una(&self) -> u64 {
        self.una
    }

    /// End of what was ever sent.
    #[inline]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Sent and not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.nxt - self.una
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the peer has closed and everything it sent has been received.
    pub fn at_end(&self) -> bool {
        self.peer_fin.is_some_and(|fin| self.rcv_nxt > fin) && self.readable() == 0
    }

    /// The counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Lets the congestion control's periodic timers catch up, for who wants to look at it while nothing arrives. It changes
    /// nothing that the next arrival would not change as well.
    pub fn catch_up(&mut self, now: Time) {
        if self.is_synchronized() && self.state != State::SynReceived {
            self.controller.catch_up(now);
        }
    }

    /// The congestion control.
    #[inline]
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// The RTT sample (exact, under Karn's rule) of the last ACK, if it gave one and it has not been taken yet.
    #[inline]
    pub fn take_rtt(&mut self) -> Option<Duration> {
        self.last_rtt.take()
    }

    /// The smallest RTT so far.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// The window the peer advertises.
    pub fn peer_window(&self) -> Bytes {
        Bytes(self.snd_wnd)
    }

    /// Payload of a full segment.
    pub fn mss(&self) -> u32 {
        self.mss
    }

    fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::Closed | State::Listen | State::SynSent)
    }

    #[inline]
    fn seq_of(&self, offset: u64) -> Seq {
        Seq(self.config.iss).plus(1).plus(offset as u32)
    }

    #[inline]
    fn timestamp_now(&self, now: Time) -> u32 {
        // Counted from 1: TSecr 0 means "none" (RFC 7323 section 3.2), and a phase makes it the machine's clock.
        (self.timestamp_clock.count(now) + 1) as u32
    }

    #[inline]
    fn timestamp_option(&self, now: Time) -> Option<Timestamps> {
        self.timestamps.then(|| Timestamps { value: self.timestamp_now(now), echo: self.ts_recent })
    }

    fn start(&mut self, now: Time) {
        let max_window = Bytes(65_535 << self.snd_scale);
        let lost_syn = self.rto.backoff() > 0;
        // RFC 5681 section 3.1: after a lost SYN the initial window is one segment.
        let segments = if lost_syn { 1 } else { self.config.stack.initial_window as u64 };
        let initial_window = Bytes(segments * self.mss as u64);
        if lost_syn {
            self.rto.after_lost_syn();
        }
        self.retries = 0;
        let rtt = (!lost_syn).then(|| now.since(self.last_sent));
        if rtt.is_some() {
            self.rto.sample(now, self.last_sent); // Karn: only a handshake that was sent once is timed
        }
        self.controller.on_start(&Start { now, mss: self.mss, initial_window, max_window, rtt });
    }

    fn reach_closed(&mut self) {
        self.state = State::Closed;
        self.ack_now = false;
        (self.retransmit_at, self.persist_at) = (Time::MAX, Time::MAX);
        (self.delayed_ack_at, self.time_wait_at) = (Time::MAX, Time::MAX);
        self.send_at = Time::MAX;
    }

    /// By how much the window slides or opens before the peer is told at once: in BSD two segments, or half the buffer.
    #[inline]
    fn told_at_once(&self) -> u64 {
        (self.config.stack.ack_every as u64 * self.mss as u64).min(self.config.receive_buffer.0 / 2)
    }

    fn delay_ack(&mut self, now: Time) {
        let at = match self.config.stack.delayed_ack {
            DelayedAck::None => return self.ack_now = true,
            DelayedAck::After(d) => now + d,
            DelayedAck::FastTicks(period) => Ticks::new(period, self.config.timer_phase).after(now, 1),
        };
        self.delayed_ack_at = self.delayed_ack_at.min(at);
    }
}

/// The smallest shift with which a 16-bit window field covers the buffer (RFC 7323 section 2.3: at most 14).
fn scale_for(buffer: Bytes) -> u8 {
    (0..14).find(|s| 65_535u64 << s >= buffer.0).unwrap_or(14)
}

impl Tcp<Length> {
    /// The application will write `bytes` as fast as the send buffer takes them.
    pub fn offer(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// The application stops writing now: what is buffered is still delivered, then the connection closes.
    pub fn stop(&mut self) {
        self.written = self.written.min(self.una + self.config.send_buffer.0).max(self.max);
        self.fin = true;
    }
}

impl<P: Stored> Endpoint<Segment<P>> for Tcp<P> {
    #[inline]
    fn receive(&mut self, now: Time, segment: Segment<P>) {
        self.input(now, segment);
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<Segment<P>> {
        self.run_timers(now);
        self.output(now)
    }

    #[inline]
    fn wake_at(&self) -> Option<Time> {
        let timers = self.retransmit_at.min(self.persist_at).min(self.delayed_ack_at).min(self.time_wait_at);
        let at = timers.min(self.send_at);
        (at != Time::MAX).then_some(at)
    }
}

/// How long a segment of `size` bytes keeps the next one waiting at `rate`.
fn pace(rate: Rate, size: u32) -> Duration {
    rate.time_for(Bytes(size as u64))
}
