//! The TCP held to its sources: two ends over a bad network (`net`), and one end against a peer that says exactly what the
//! test wants (`puppet`). Time is virtual and every run repeatable.
//!
//! | file | what it claims |
//! |---|---|
//! | `handshake` | options, simultaneous open, lost SYNs |
//! | `transfer` | every byte once and in order, whatever the network does; sequence numbers wrap |
//! | `window` | persist, silly windows, Nagle, idle restart |
//! | `acks` | when an ACK leaves and what it echoes; PAWS |
//! | `ecn` | RFC 3168, clause by clause |
//! | `closing` | FIN in every state, RST, abort |
//! | `bsd`, `newreno` | recoveries as tables, ACK by ACK |
//! | `closed_forms` | numbers from outside: Mathis, slow start with IW 10 |

mod acks;
mod bsd;
mod closed_forms;
mod closing;
mod ecn;
mod handshake;
mod net;
mod newreno;
mod puppet;
mod states;
mod transfer;
mod window;

use super::recovery::Kind;
use super::rto::Bounds;
use super::stack::{DelayedAck, Stack};
use super::stream::Stored;
use super::*;
use crate::congestion::reno::Reno;
use crate::registry::{Settings, Value};
use crate::wire::tcp::Length;
use alloc::boxed::Box;
use std::vec::Vec;

/// Payload of a full segment in most tests (with timestamps off).
const MSS: u32 = 1000;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Stack `net2`, as its registry entry says.
fn net2() -> Stack {
    Stack {
        recovery: Kind::Reno,
        initial_window: 1,
        duplicate_threshold: 3,
        rto_in_ticks: true,
        rto_bounds: Bounds { min: ms(1000), max: ms(64_000), initial: ms(3000) },
        persist_min: ms(5000),
        slow_tick: ms(500),
        delayed_ack: DelayedAck::FastTicks(ms(200)),
        ack_every: 2,
        timestamps: true,
        timestamp_clock: ms(500),
        window_scale: true,
        ecn: false,
        router_states: false,
        halve_window: true,
        max_retransmits: 12,
    }
}

/// Stack `rfc`: the defaults.
fn rfc() -> Stack {
    Stack {
        recovery: Kind::NewReno,
        initial_window: 10,
        duplicate_threshold: 3,
        rto_in_ticks: false,
        rto_bounds: Bounds { min: ms(1000), max: ms(60_000), initial: ms(1000) },
        persist_min: ms(0),
        slow_tick: ms(500),
        delayed_ack: DelayedAck::After(ms(40)),
        ack_every: 2,
        timestamps: true,
        timestamp_clock: ms(1),
        window_scale: true,
        ecn: false,
        router_states: false,
        halve_window: false,
        max_retransmits: 12,
    }
}

/// The stack without timestamps, so that a full segment carries exactly [`MSS`] bytes.
fn plain(stack: Stack) -> Stack {
    Stack { timestamps: false, ..stack }
}

fn config(stack: Stack) -> Config {
    Config {
        stack,
        mss: MSS,
        receive_buffer: Bytes(60_000),
        send_buffer: Bytes(1 << 20),
        timer_phase: Duration::ZERO,
        iss: 5000,
        ports: (1024, 80),
        reads_at_once: false,
    }
}

/// Reno as the stack asks for it: BSD's `mss/8` per ACK, or the standards'.
fn reno(stack: &Stack) -> Box<dyn Controller> {
    if stack.rto_in_ticks { reno_with(8, false, false) } else { reno_with(0, true, true) }
}

fn reno_with(extra: u64, validate: bool, count_bytes: bool) -> Box<dyn Controller> {
    let settings = [
        ("extra", Value::Count(extra)),
        ("validate", Value::Flag(validate)),
        ("count_bytes", Value::Flag(count_bytes)),
    ];
    let settings = Settings(settings.into_iter().map(|(name, value)| (name.into(), value)).collect());
    Box::new(Reno::new(&settings).unwrap())
}

/// A payload whose every byte follows from its place in the stream.
trait Load: Stored {
    fn piece(at: u64, len: u32) -> Self;
    fn is_piece(&self, at: u64) -> bool;
}

impl Load for Length {
    fn piece(_at: u64, len: u32) -> Self {
        Length(len)
    }
    fn is_piece(&self, _at: u64) -> bool {
        true
    }
}

impl Load for Vec<u8> {
    fn piece(at: u64, len: u32) -> Self {
        (at..at + len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }
    fn is_piece(&self, at: u64) -> bool {
        *self == Self::piece(at, self.len() as u32)
    }
}
