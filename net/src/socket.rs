//! Ends of the kernel's own: TCP and UDP sockets in a namespace, each on a thread that does not outlive its handle.
//!
//! A bulk source writes [`Content`] as fast as the socket takes it and samples TCP_INFO meanwhile; a sink reads, checks every byte
//! and may stop reading for a while. What goes wrong is told by the handle, in words.

use crate::clock::Clock;
use crate::content::Content;
use crate::namespace::Namespace;
use narrows_core::units::Bytes;
use narrows_core::{Rate, Time};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why an end of the kernel's could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Failure {
    #[error("this kernel has no congestion control `{name}`: it has {available}")]
    UnknownController { name: String, available: String },
    #[error("cannot connect to {to}: {error}")]
    Connect { to: SocketAddr, error: io::Error },
    #[error("nobody has connected to {at}")]
    Nobody { at: SocketAddr },
    #[error("{what}: {error}")]
    Call { what: String, error: io::Error },
}

/// A TCP connection that sends.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Whom to.
    pub to: SocketAddr,
    /// Congestion control; `None` is the namespace's default.
    pub controller: Option<String>,
    /// Send buffer: what may be written and not yet acknowledged; `None` lets the kernel tune it.
    pub send_buffer: Option<Bytes>,
    /// Receive buffer; `None` lets the kernel tune it.
    pub window: Option<Bytes>,
    /// The MSS option's value at most.
    pub mss: Option<u32>,
    /// What is written.
    pub content: Content,
    /// How much; `None` writes until stopped.
    pub size: Option<u64>,
    /// When it connects.
    pub start: Time,
    /// When it stops writing; what is in the buffer by then is still delivered.
    pub stop: Option<Time>,
    /// How often TCP_INFO is sampled, if at all.
    pub sample: Option<Duration>,
}

/// A source's state while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes written to the socket, or read from it.
    pub bytes: u64,
    /// Whether its thread has nothing more to do.
    pub over: bool,
}

/// What TCP_INFO said.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// What.
    pub info: TcpInfo,
}

/// Linux's `struct tcp_info`. Fields that the kernel does not know are zero. Times are in microseconds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // the kernel's own names
pub struct TcpInfo {
    pub state: u8,
}

/// A bulk source.
pub struct TcpSource {}

/// What a source has seen.
#[derive(Debug, Default)]
pub struct SourceReport {
    /// Bytes written to the socket.
    pub written: u64,
    /// When the connection was established.
    pub connected: Option<Time>,
    /// When everything written was acknowledged, to a millisecond.
    pub finished: Option<Time>,
    /// TCP_INFO over time; the last one is of the end.
    pub samples: Vec<Sample>,
    /// What went wrong.
    pub failure: Option<Failure>,
}

impl TcpSource {
    /// Opens the socket in `namespace`, on a thread that connects at the start time.
    ///
    /// # Errors
    /// The kernel lacks the congestion control, or refuses an option.
    pub fn open(namespace: &Namespace, clock: Clock, sending: Sending) -> Result<TcpSource, Failure> {
        let _ = (namespace, clock, sending);
        todo!()
    }
    /// How far it is.
    pub fn progress(&self) -> Progress {
        todo!()
    }
    /// It stops writing; what it has written is still delivered.
    pub fn stop(&self) {
        todo!()
    }
    /// Waits for the thread, which ends at once: a connection that is not over is reset.
    pub fn finish(self) -> SourceReport {
        todo!()
    }
}

/// A TCP connection that is accepted and read.
#[derive(Clone, Debug)]
pub struct Receiving {
    /// Where it listens.
    pub at: SocketAddr,
    /// The largest window it advertises; `None` lets the kernel tune it.
    pub window: Option<Bytes>,
    /// The MSS option's value at most.
    pub mss: Option<u32>,
    /// What is expected.
    pub content: Content,
    /// When it does not read: from, until; in order of time and disjoint.
    pub pauses: Vec<(Time, Time)>,
}

/// A bulk sink. It listens from when it is opened.
pub struct TcpSink {}

/// What a sink has seen.
#[derive(Debug, Default)]
pub struct SinkReport {
    /// Bytes read.
    pub bytes: u64,
    /// SHA-256 of them.
    pub digest: [u8; 32],
    /// Offset of the first byte that was not what was sent.
    pub first_wrong: Option<u64>,
    /// When the last one was read.
    pub last: Option<Time>,
    /// Whether the peer has closed.
    pub ended: bool,
    /// What went wrong.
    pub failure: Option<Failure>,
}

impl TcpSink {
    /// Opens the socket in `namespace` and listens.
    ///
    /// # Errors
    /// The kernel refuses the address or an option.
    pub fn open(namespace: &Namespace, clock: Clock, receiving: Receiving) -> Result<TcpSink, Failure> {
        let _ = (namespace, clock, receiving);
        todo!()
    }
    /// How far it is.
    pub fn progress(&self) -> Progress {
        todo!()
    }
    /// Waits for the thread, which ends at once: a connection that is not over is reset.
    pub fn finish(self) -> SinkReport {
        todo!()
    }
}

/// Datagrams at a constant rate.
pub struct UdpSource {}

impl UdpSource {
    /// Sends packets of `size` bytes (IP level) at `rate` (of whole IP packets) while it is on, from an address to another.
    ///
    /// # Errors
    /// The kernel refuses the address.
    pub fn open(
        namespace: &Namespace,
        clock: Clock,
        to: SocketAddr,
        rate: Rate,
        size: u32,
        periods: Vec<(Time, Time)>,
    ) -> Result<UdpSource, Failure> {
        let _ = (namespace, clock, to, rate, size, periods);
        todo!()
    }
    /// Ends it; how many datagrams it sent, and why it could not send more.
    pub fn finish(self) -> (u64, Option<Failure>) {
        todo!()
    }
}

/// Counts datagrams.
pub struct UdpSink {}

impl UdpSink {
    /// Listens at an address.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn open(namespace: &Namespace, clock: Clock, at: SocketAddr) -> Result<UdpSink, Failure> {
        let _ = (namespace, clock, at);
        todo!()
    }
    /// Payload bytes so far.
    pub fn progress(&self) -> Progress {
        todo!()
    }
    /// Ends it: what was counted.
    pub fn finish(self) -> narrows_core::transport::udp::Sink {
        todo!()
    }
}

