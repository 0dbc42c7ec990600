//! Narrows on real packets: the same queues, links and transports as in the simulator, by the real clock, on Linux. This crate
//! has the project's only clock, its threads, and (with `narrows-kernel`) its `unsafe`.
//!
//! | file | what it holds |
//! |---|---|
//! | [`frame`] | a packet in bytes, and what a queue may know of it |
//! | [`network`] | the emulated network, without clock and devices: the simulator's, driven in pieces |
//! | [`port`] | where packets come in and go out: TUN devices, packet sockets, ends of our own |
//! | [`content`] | what a transfer carries: bytes that anyone can check |
//! | [`socket`] | ends of the kernel's own, on threads |
//! | [`namespace`] | network namespaces that nothing outlives |
//! | [`build`] | from a scenario to a network with a port for every host |
//! | [`netlink`] | devices, addresses and routes of a namespace |
//! | [`layer`] | a namespace inside, joined to the one outside; layers nest |
//! | [`emulate`] | an emulated path with a program behind it |
//! | [`child`] | the program: its signals, its end, its exit code |
//! | [`servers`] | programs on the host side |
//! | [`rootless`] | a user namespace where we are not root |
//! | [`gateway`] | the loop that moves packets between ports by the real clock |
//! | [`run`] | a scenario in real time: `stage` (namespaces, devices), `linux` and `wire` (the kernel's ends and ours), `flow` and `observe` (what is counted) |
//! | [`standing`] | a bottleneck between two existing interfaces, for as long as it is wanted |
//! | [`privilege`] | giving up privileges |
//! | [`clock`] | the clock, how late we are by it, real-time scheduling |
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the one place that reads the clock
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod build;
pub mod child;
pub mod clock;
pub mod content;
pub mod emulate;
mod flow;
pub mod frame;
pub mod gateway;
pub mod guard;
pub mod layer;
mod linux;
pub mod namespace;
pub mod netlink;
pub mod network;
mod observe;
pub mod port;
pub mod privilege;
pub mod rootless;
pub mod run;
pub mod servers;
pub mod socket;
mod stage;
pub mod standing;
mod wire;
