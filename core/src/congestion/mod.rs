//! Congestion control: how much a sender dares to have in the network. One file per algorithm, one line each in
//! [`REGISTRY`].
//!
//! A controller is told of sends, acknowledgments and congestion, and answers with a window and, if it likes, a pacing rate.
//! It never sees packets, sockets or clocks; those that need a periodic timer catch up from `now`.

pub mod becc;
pub mod forecast;
pub mod reno;
#[cfg(test)]
mod tests;

use crate::registry::{Parameter, Settings, Unfit};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::tcp::RouterStates;
use alloc::boxed::Box;
use core::time::Duration;

/// The connection has been established; byte counts can begin.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// When.
    pub now: Time,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The stack's initial window.
    pub initial_window: Bytes,
    /// The largest window the connection can ever use: 65535 scaled by the negotiated shift.
    pub max_window: Bytes,
    /// The RTT of the handshake, if its segments were sent only once.
    pub rtt: Option<Duration>,
}

/// A data segment was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// Payload bytes.
    pub bytes: Bytes,
    /// Bytes in flight after it.
    pub in_flight: Bytes,
    /// Whether it was sent before.
    pub retransmission: bool,
}

/// A delivery-rate sample (draft-ietf-ccwg-bbr section 4.1, "Delivery Rate Samples").
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Data delivered over the sample's interval, divided by the interval: the longer of its send and ACK phases.
    pub rate: Rate,
    /// The interval.
    pub interval: Duration,
    /// The sender had nothing to send within the sample, so the rate may be below what the path could carry.
    pub app_limited: bool,
}

/// An acknowledgment that advanced `snd_una`.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub acked: Bytes,
    /// Bytes in flight after it.
    pub in_flight: Bytes,
    /// Stream offset of the first unacknowledged byte, after it.
    pub una: u64,
    /// Stream offset behind the last byte ever sent.
    pub max: u64,
    /// The RTT of the newest segment it acknowledges, if that was sent only once (Karn's rule).
    pub rtt: Option<Duration>,
    /// The RTT by the timestamp it echoes, in the resolution of the timestamp clock.
    pub echo: Option<Duration>,
    /// The smallest RTT of the connection so far.
    pub min_rtt: Option<Duration>,
    /// It acknowledged data sent after the previous round began: a new round starts.
    pub round_start: bool,
    /// Loss recovery is still going on after it: the window must not grow.
    pub in_recovery: bool,
    /// The sender was kept from sending by its window, not by a lack of data.
    pub window_limited: bool,
    /// It carried an echo of congestion experienced: the window must not grow on it (RFC 3168 section 6.1.2).
    pub ce: bool,
    /// A delivery-rate sample, if the controller asked for them.
    pub rate: Option<RateSample>,
}

/// A duplicate acknowledgment.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateAck {
    /// When it arrived.
    pub now: Time,
    /// How many duplicates in a row, this one included.
    pub count: u32,
    /// Stream offset of the first unacknowledged byte.
    pub una: u64,
    /// Stream offset behind the last byte ever sent.
    pub max: u64,
    /// The RTT by the timestamp it echoes, in the resolution of the timestamp clock.
    pub echo: Option<Duration>,
}

/// What told the sender of congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Duplicate or selective acknowledgments.
    Loss,
    /// An ECN echo.
    Ecn,
    /// The retransmission timer.
    Timeout,
    /// An earlier signal turns out to have been wrong.
    Spurious,
}

/// A congestion event.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    /// When it was noticed.
    pub now: Time,
    /// By what.
    pub signal: Signal,
    /// What the sender had been allowed to have outstanding: min(snd_wnd, snd_cwnd), or bytes in flight, as the stack says.
    pub flight: Bytes,
}

/// A sender's congestion control.
pub trait Controller: Send {
    /// The connection is established.
    fn on_start(&mut self, start: &Start);
    /// Periodic timers catch up to `now`: before sending after idleness, and for observers. Events do so by themselves.
    fn catch_up(&mut self, _now: Time) {}
    /// A segment was sent.
    fn on_send(&mut self, _sent: &Sent) {}
    /// An acknowledgment advanced.
    fn on_ack(&mut self, ack: &Ack);
    /// A duplicate acknowledgment arrived.
    fn on_duplicate_ack(&mut self, _duplicate: &DuplicateAck) {}
    /// Routers on the way report their queues, in an ACK that is not older than the last: before what else it brings is told.
    fn on_router_states(&mut self, _now: Time, _states: &RouterStates) {}
    /// Congestion was noticed: reduce.
    fn on_congestion(&mut self, event: &Congestion);
    /// The recovery in progress overrides the congestion window: Tahoe's restart at one segment, Reno's inflation and
    /// deflation.
    fn set_congestion_window(&mut self, window: Bytes);
    /// The congestion window as recovery sees it, before any further bound of the controller.
    fn congestion_window(&self) -> Bytes;
    /// The slow-start threshold.
    fn ssthresh(&self) -> Bytes;
    /// How much may be in flight.
    fn window(&self) -> Bytes {
        self.congestion_window()
    }
    /// How fast to send; `None` leaves it to the acknowledgment clock. The host obeys it.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// The resolution it needs of the timestamp option's clock, if it cares.
    fn timestamp_clock(&self) -> Option<Duration> {
        None
    }
    /// Whether it uses [`Ack::rate`].
    fn wants_rate_samples(&self) -> bool {
        false
    }
    /// Shows its state by name, in bytes, seconds and bit/s: the one probe for traces, tables and pages.
    fn inspect(&self, _probe: &mut dyn FnMut(&'static str, f64)) {}
}

/// What a builder is given beside its own settings.
pub struct Context {
    /// The controller inside, for decorators.
    pub inner: Option<Box<dyn Controller>>,
    /// A random stream of its own.
    pub rng: Rng,
}

/// Checks settings and makes a controller.
pub type Build = fn(&Settings, Context) -> Result<Box<dyn Controller>, Unfit>;

/// One controller of the registry.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in files and flags.
    pub name: &'static str,
    /// What it does, in one line, with its source.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// The controller it decorates if the scenario names none; `None` if it decorates nothing.
    pub decorates: Option<&'static str>,
    /// Checks the settings and builds it.
    pub build: Build,
}

/// Every controller.
pub const REGISTRY: &[Entry] = &[reno::ENTRY, becc::ENTRY, becc::MODERN, forecast::ENTRY];

/// The entry called `name`.
pub fn by_name(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|e| e.name == name)
}
