//! What a host tells while it runs, and what it must obey: the same for virtual and for real time.

use narrows_core::{Datagram, Time};

/// A packet as a host has it: as a value, or as the bytes of a real one.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// What hosts move whose payloads are lengths.
    Value(&'a Datagram),
    /// An IPv4 or IPv6 packet, from the first byte of its header.
    Bytes(&'a [u8]),
}

/// Looks on while a host runs. Every method has a default: watch only what you need.
pub trait Watch {
    /// Called now and then with how far the run is. `false` stops it: the host returns what it has seen so far.
    fn progress(&mut self, _now: Time, _end: Time) -> bool {
        true
    }
    /// Whether [`Watch::departs`] and [`Watch::arrives`] should be called at all.
    fn wants_packets(&self) -> bool {
        false
    }
    /// A packet begins to leave on line `line` (2 * link for the forward direction, 2 * link + 1 for the backward one).
    fn departs(&mut self, _line: usize, _now: Time, _packet: Seen<'_>) {}
    /// A packet has come to the end of line `line`.
    fn arrives(&mut self, _line: usize, _now: Time, _packet: Seen<'_>) {}
}

/// Watches nothing.
pub struct Unwatched;

impl Watch for Unwatched {}
