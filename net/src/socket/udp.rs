//! The kernel's UDP: datagrams at a constant rate by the schedule of [`udp::Source`], numbered, and a sink that counts them.

use super::worker::{Order, Shared, Worker};
use super::{Failure, Progress, call, open};
use crate::clock::Clock;
use crate::namespace::Namespace;
use narrows_core::transport::Endpoint;
use narrows_core::transport::udp::{self, Sink};
use narrows_core::wire::udp::Message;
use narrows_core::{Rate, Time};
use nix::poll::PollFlags;
use socket2::{Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

/// Datagrams at a constant rate.
pub struct UdpSource(Worker<(u64, Option<Failure>)>);

impl UdpSource {
    /// Sends packets of `size` bytes (IP level) at `rate` (of whole IP packets) to an address, while it is on.
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
        let socket = open(namespace, to, Type::DGRAM)?;
        socket.connect(&to.into()).map_err(|error| Failure::Connect { to, error })?;
        let mut source = udp::Source::new(rate, size, periods);
        Ok(UdpSource(Worker::spawn("udp-source", move |shared| {
            let failure = send(&socket, clock, &mut source, shared).err();
            (source.sent(), failure)
        })?))
    }

    /// Whether its last period is over.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// Ends it; how many datagrams it sent, and why it could not send more.
    pub fn finish(self) -> (u64, Option<Failure>) {
        self.0.finish()
    }
}

fn send(socket: &Socket, clock: Clock, source: &mut udp::Source, shared: &Shared) -> Result<(), Failure> {
    let _ = nix::sys::prctl::set_timerslack(1); // only the exactness suffers without
    let mut payload = Vec::new();
    while let Some(at) = source.wake_at() {
        if shared.ordered() != Order::GoOn {
            break;
        }
        if !clock.reaches(at) {
            shared.wait(clock, None, at)?;
            continue;
        }
        // At its own instant, so that lateness does not lower the rate.
        let Some(message) = source.transmit(at) else { continue };
        payload.clear();
        payload.extend(message.number.to_be_bytes());
        payload.resize(message.length as usize, 0);
        match socket.send(&payload) {
            Ok(n) => shared.count(n as u64),
            Err(e) if is_loss(&e) => {}
            Err(e) => return Err(call("send")(e)),
        }
    }
    Ok(())
}

/// The kernel had no room for it, or the peer no socket: as good as lost on the way, which the sink's count shows.
fn is_loss(e: &io::Error) -> bool {
    let full = e.raw_os_error() == Some(libc::ENOBUFS);
    full || matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::Interrupted)
}

/// Counts datagrams.
pub struct UdpSink(Worker<(Sink, Option<Failure>)>);

impl UdpSink {
    /// Listens at an address.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn open(namespace: &Namespace, clock: Clock, at: SocketAddr) -> Result<UdpSink, Failure> {
        let mut socket = open(namespace, at, Type::DGRAM)?;
        socket.bind(&at.into()).map_err(|error| Failure::Listen { at, error })?;
        Ok(UdpSink(Worker::spawn("udp-sink", move |shared| {
            let mut sink = Sink::default();
            let failure = receive(&mut socket, clock, &mut sink, shared).err();
            (sink, failure)
        })?))
    }

    /// Payload bytes so far.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// Ends it: what was counted, and what went wrong.
    pub fn finish(self) -> (Sink, Option<Failure>) {
        self.0.finish()
    }
}

fn receive(socket: &mut Socket, clock: Clock, sink: &mut Sink, shared: &Shared) -> Result<(), Failure> {
    let mut buffer = vec![0; 65_536];
    loop {
        let order = match socket.read(&mut buffer) {
            Ok(n) => {
                let number = buffer[..n].first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
                sink.receive(clock.now(), Message { length: n as u32, number, ..Message::default() });
                shared.count(n as u64);
                shared.ordered()
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                shared.wait(clock, Some((socket, PollFlags::POLLIN)), Time::MAX)?
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Order::GoOn,
            Err(e) => return Err(call("receive")(e)),
        };
        if order == Order::End {
            return Ok(());
        }
    }
}
