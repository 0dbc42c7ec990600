//! Every congestion algorithm of Narrows, written once as a state machine that owns no clock, no socket and no randomness.
//!
//! It is told the time, and it says when it next wants to be woken. Hosts (the simulator, the gateway, a browser page) move
//! packets and time; an algorithm never knows which host it lives in. Read in this order:
//!
//! * [`time`], [`units`], [`rng`]: what everything is measured in.
//! * [`packet`], [`wire`]: what travels.
//! * [`limit`]: when the next packet may leave.
//! * [`qdisc`]: what happens to a packet that must wait.
//! * [`ackwin`]: what a router says to senders through the ACKs that pass it.
//! * [`congestion`]: how much a sender dares to send.
//! * [`transport`]: the ends that turn a byte stream into packets and back.
//! * [`registry`]: how all of these are found by name, with parameters that carry units.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ackwin;
pub mod congestion;
pub mod limit;
pub mod packet;
pub mod qdisc;
pub mod registry;
pub mod rng;
pub mod time;
pub mod transport;
pub mod units;
pub mod wire;

pub use packet::{Datagram, Ecn, FlowId, Packet};
pub use rng::Rng;
pub use time::Time;
pub use units::{Bytes, Rate};
