//! Ends of the kernel's own: TCP and UDP sockets in a namespace, each on a thread that does not outlive its handle.
//!
//! A bulk source writes [`Content`] as fast as the socket takes it and samples TCP_INFO meanwhile; a sink reads, checks every byte
//! and may stop reading for a while. What goes wrong is told by the handle, in words.
//!
//! **Windows.** A scenario's `window` is the most that may be in flight to a receiver. Linux accounts for buffers, not for data: it
//! doubles what SO_RCVBUF says and advertises the part that it believes holds data, a belief that changes with the packets it
//! sees. So a sink asks for a receive buffer with room to spare, and TCP_WINDOW_CLAMP sets what it advertises: `window` exactly,
//! rounded down to the window scale's unit. The kernel forgets the clamp at the first full segment, which changes its belief, so
//! the sink sets it again as it reads: until then the window may open too far, for a round trip or two. It begins low and opens
//! as data arrives, as all of Linux's windows do.

mod info;
mod udp;
mod worker;

pub use info::{Sample, TcpInfo};
pub use udp::{UdpSink, UdpSource};

use crate::clock::Clock;
use crate::content::{Content, PIECE, Received};
use crate::namespace::Namespace;
use narrows_core::Time;
use narrows_core::units::Bytes;
use nix::poll::PollFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;
use worker::{Order, Shared, Worker};

/// Why an end of the kernel's could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Failure {
    #[error(
        "this kernel has no congestion control `{name}`: choose among {available}, or load one of that name"
    )]
    UnknownController { name: String, available: String },
    #[error(
        "{buffer} of {wanted} bytes is more than this user may have: run as root, or raise net.core.{limit} to {wanted}"
    )]
    Buffer { buffer: &'static str, wanted: u64, limit: &'static str },
    #[error("cannot connect to {to}: {error}")]
    Connect { to: SocketAddr, error: io::Error },
    #[error("cannot listen at {at}: {error}")]
    Listen { at: SocketAddr, error: io::Error },
    #[error("the connection broke after {bytes} bytes: {error}")]
    Broken { bytes: u64, error: io::Error },
    #[error("{what}: {error}")]
    Call { what: &'static str, error: io::Error },
}

fn call(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::Call { what, error }
}

/// How far an end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes written to the socket, or read from it.
    pub bytes: u64,
    /// Whether its thread has nothing more to do.
    pub over: bool,
}

/// A TCP connection that sends.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Whom to.
    pub to: SocketAddr,
    /// Congestion control; `None` is the namespace's default.
    pub controller: Option<String>,
    /// What may be written and not yet acknowledged, about; `None` lets the kernel tune it.
    pub send_buffer: Option<Bytes>,
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

/// A bulk source.
pub struct TcpSource(Worker<SourceReport>);

impl TcpSource {
    /// Opens the socket in `namespace`, with a thread that connects at the start time.
    ///
    /// # Errors
    /// The kernel lacks the congestion control, or refuses an option.
    pub fn open(namespace: &Namespace, clock: Clock, sending: Sending) -> Result<TcpSource, Failure> {
        let socket = open(namespace, sending.to, Type::STREAM)?;
        if let Some(name) = &sending.controller {
            control_congestion(&socket, name)?;
        }
        if let Some(bytes) = sending.send_buffer {
            send_buffer(&socket, bytes)?;
        }
        if let Some(mss) = sending.mss {
            socket.set_tcp_mss(mss).map_err(call("TCP_MAXSEG"))?;
        }
        let source = Source {
            sampled: sending.sample.map_or(Time::MAX, |_| sending.start),
            clock,
            socket,
            report: SourceReport::default(),
            sending,
        };
        Ok(TcpSource(Worker::spawn("tcp-source", move |shared| source.run(shared))?))
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// It stops writing; what it has written is still delivered.
    pub fn stop(&self) {
        self.0.order(Order::StopWriting);
    }

    /// Waits for the thread, which ends at once: a connection that is not over is reset.
    pub fn finish(self) -> SourceReport {
        self.0.finish()
    }
}

struct Source {
    clock: Clock,
    socket: Socket,
    sending: Sending,
    report: SourceReport,
    /// When TCP_INFO is sampled next.
    sampled: Time,
}

/// So often a source looks whether the last byte is acknowledged.
const FINISH: Duration = Duration::from_millis(1);

impl Source {
    fn run(mut self, shared: &Shared) -> SourceReport {
        if let Err(failure) = self.transfer(shared) {
            self.report.failure = Some(failure);
        }
        if self.report.connected.is_some() && self.sending.sample.is_some() {
            self.sample();
        }
        if self.report.finished.is_none() {
            let _ = self.socket.set_linger(Some(Duration::ZERO)); // closing resets
        }
        self.report
    }

    /// What was wanted of it, until it is told to end.
    fn transfer(&mut self, shared: &Shared) -> Result<(), Failure> {
        while !self.clock.reaches(self.sending.start) {
            if shared.wait(self.clock, None, self.sending.start)? >= Order::StopWriting {
                return Ok(());
            }
        }
        if !self.connect(shared)? || !self.write(shared)? {
            return Ok(());
        }
        self.socket.shutdown(Shutdown::Write).map_err(self.broken())?;
        loop {
            // The SYN counts as a byte there, and the FIN does: once the latter is acknowledged it is above in any case.
            let info = TcpInfo::of(&self.socket).map_err(call("TCP_INFO"))?;
            if info.bytes_acked > self.report.written {
                self.report.finished = Some(self.clock.now());
                return Ok(());
            }
            if let Some(error) = self.socket.take_error().map_err(call("SO_ERROR"))? {
                return Err(self.broken()(error));
            }
            if self.wait(shared, PollFlags::empty(), self.clock.now() + FINISH)? == Order::End {
                return Ok(());
            }
        }
    }

    /// `false` if it was told to end before.
    fn connect(&mut self, shared: &Shared) -> Result<bool, Failure> {
        let to = self.sending.to;
        let failed = |error| Failure::Connect { to, error };
        match self.socket.connect(&SockAddr::from(to)) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(failed(e)),
            _ => {}
        }
        while self.socket.peer_addr().is_err() {
            if self.wait(shared, PollFlags::POLLOUT, Time::MAX)? == Order::End {
                return Ok(false);
            }
            if let Some(error) = self.socket.take_error().map_err(call("SO_ERROR"))? {
                return Err(failed(error));
            }
        }
        self.report.connected = Some(self.clock.now());
        Ok(true)
    }

    /// Writes all that is to be written; `false` if it was told to end before.
    fn write(&mut self, shared: &Shared) -> Result<bool, Failure> {
        let (size, stop) = (self.sending.size.unwrap_or(u64::MAX), self.sending.stop.unwrap_or(Time::MAX));
        let (mut piece, mut left) = (vec![0; PIECE], 0..0);
        let mut order = shared.ordered();
        while self.report.written < size && order == Order::GoOn && self.clock.now() < stop {
            if left.is_empty() {
                left = 0..PIECE.min((size - self.report.written) as usize);
                self.sending.content.fill(self.report.written, &mut piece[left.clone()]);
            }
            order = match self.socket.write(&piece[left.clone()]) {
                Ok(n) => {
                    left.start += n;
                    self.report.written += n as u64;
                    shared.count(n as u64);
                    self.sample_if_due();
                    shared.ordered()
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(shared, PollFlags::POLLOUT, stop)?,
                Err(e) if e.kind() == ErrorKind::Interrupted => order,
                Err(e) => return Err(self.broken()(e)),
            };
        }
        Ok(order != Order::End)
    }

    fn broken(&self) -> impl FnOnce(io::Error) -> Failure + use<> {
        let bytes = self.report.written;
        move |error| Failure::Broken { bytes, error }
    }

    /// Until the socket is ready, something is ordered, or it is `until`; TCP_INFO is sampled meanwhile.
    fn wait(&mut self, shared: &Shared, ready: PollFlags, until: Time) -> Result<Order, Failure> {
        let order = shared.wait(self.clock, Some((&self.socket, ready)), until.min(self.sampled))?;
        self.sample_if_due();
        Ok(order)
    }

    fn sample_if_due(&mut self) {
        if self.sampled <= self.clock.now() {
            self.sample();
        }
    }

    fn sample(&mut self) {
        let at = self.clock.now();
        let interval = self.sending.sample.unwrap_or(Duration::MAX);
        while self.sampled <= at {
            self.sampled += interval;
        }
        if let Ok(info) = TcpInfo::of(&self.socket) {
            self.report.samples.push(Sample { at, info });
        }
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

/// A bulk sink. It listens from when it is opened, and accepts one connection.
pub struct TcpSink(Worker<SinkReport>);

impl TcpSink {
    /// Opens the socket in `namespace` and listens.
    ///
    /// # Errors
    /// The kernel refuses the address or an option.
    pub fn open(namespace: &Namespace, clock: Clock, receiving: Receiving) -> Result<TcpSink, Failure> {
        let socket = open(namespace, receiving.at, Type::STREAM)?;
        if let Some(window) = receiving.window {
            bound_window(&socket, window)?;
        }
        if let Some(mss) = receiving.mss {
            socket.set_tcp_mss(mss).map_err(call("TCP_MAXSEG"))?;
        }
        let listen = || {
            socket.set_reuse_address(true)?;
            socket.bind(&receiving.at.into())?;
            socket.listen(1)
        };
        listen().map_err(|error| Failure::Listen { at: receiving.at, error })?;
        Ok(TcpSink(Worker::spawn("tcp-sink", move |shared| {
            let mut received = Received::new(receiving.content);
            let mut report = SinkReport::default();
            let done = sink(&socket, clock, &receiving, shared, &mut received, &mut report);
            report.failure = done.err();
            (report.bytes, report.digest) = (received.bytes(), received.digest());
            report.first_wrong = received.first_wrong();
            report
        })?))
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// Waits for the thread, which ends at once: a connection that is not over is reset.
    pub fn finish(self) -> SinkReport {
        self.0.finish()
    }
}

/// So often a sink that does not read looks whether its window is still clamped.
const CLAMP: Duration = Duration::from_millis(5);

fn sink(
    listener: &Socket,
    clock: Clock,
    receiving: &Receiving,
    shared: &Shared,
    received: &mut Received,
    report: &mut SinkReport,
) -> Result<(), Failure> {
    let mut connection = loop {
        match listener.accept() {
            Ok((connection, _)) => break connection,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(call("accept")(e)),
        }
        if shared.wait(clock, Some((listener, PollFlags::POLLIN)), Time::MAX)? == Order::End {
            return Ok(());
        }
    };
    connection.set_nonblocking(true).map_err(call("O_NONBLOCK"))?;
    // Whatever ends this function before the stream does resets the connection.
    connection.set_linger(Some(Duration::ZERO)).map_err(call("SO_LINGER"))?;
    let mut piece = vec![0; PIECE];
    loop {
        if let Some(window) = receiving.window {
            clamp(&connection, window)?;
        }
        let now = clock.now();
        let order = if let Some((_, until)) =
            receiving.pauses.iter().find(|(from, until)| *from <= now && now < *until)
        {
            shared.wait(clock, None, (*until).min(now + CLAMP))?
        } else {
            match connection.read(&mut piece) {
                Ok(0) => {
                    report.ended = true;
                    return connection.set_linger(None).map_err(call("SO_LINGER"));
                }
                Ok(n) => {
                    report.last = Some(now);
                    received.take(&piece[..n]);
                    shared.count(n as u64);
                    shared.ordered()
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    shared.wait(clock, Some((&connection, PollFlags::POLLIN)), Time::MAX)?
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => Order::GoOn,
                Err(error) => return Err(Failure::Broken { bytes: received.bytes(), error }),
            }
        };
        if order == Order::End {
            return Ok(());
        }
    }
}

/// A socket in `namespace` for addresses like `address`, which never blocks.
fn open(namespace: &Namespace, address: SocketAddr, kind: Type) -> Result<Socket, Failure> {
    let protocol = if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP };
    let open = || {
        let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    namespace.enter(open).map_err(call("socket"))
}

fn control_congestion(socket: &Socket, name: &str) -> Result<(), Failure> {
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Failure::Call { what: "TCP_CONGESTION", error };
        }
        let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let available = available.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(", ");
        Failure::UnknownController { name: name.to_string(), available }
    })
}

/// Linux doubles the value, for what a packet costs beside its data.
fn send_buffer(socket: &Socket, bytes: Bytes) -> Result<(), Failure> {
    let set = |option| info::set(socket, libc::SOL_SOCKET, option, bytes.0.min(i32::MAX as u64 / 2) as i32);
    set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF)).map_err(call("SO_SNDBUF"))?;
    let granted = socket.send_buffer_size().map_err(call("SO_SNDBUF"))? as u64;
    let refused = Failure::Buffer { buffer: "a send buffer", wanted: bytes.0, limit: "wmem_max" };
    if granted >= bytes.0 { Ok(()) } else { Err(refused) }
}

/// The largest window that a listening socket's connections advertise.
fn bound_window(socket: &Socket, window: Bytes) -> Result<(), Failure> {
    let wanted = 2 * window.0;
    let set = |option| info::set(socket, libc::SOL_SOCKET, option, wanted.min(i32::MAX as u64 / 2) as i32);
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF)).map_err(call("SO_RCVBUF"))?;
    let granted = socket.recv_buffer_size().map_err(call("SO_RCVBUF"))? as u64;
    if granted < wanted {
        return Err(Failure::Buffer { buffer: "a receive buffer", wanted, limit: "rmem_max" });
    }
    clamp(socket, window)
}

/// Sets the clamp, if it is not set: doing so anew would shut a window that is still opening.
fn clamp(socket: &Socket, window: Bytes) -> Result<(), Failure> {
    let wanted = window.0.min(i32::MAX as u64) as i32;
    let option = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
    let clamped: i32 = info::get(socket, option.0, option.1).map_err(call("TCP_WINDOW_CLAMP"))?;
    if clamped == wanted {
        return Ok(());
    }
    info::set(socket, option.0, option.1, wanted).map_err(call("TCP_WINDOW_CLAMP"))
}

#[cfg(test)]
mod tests;
