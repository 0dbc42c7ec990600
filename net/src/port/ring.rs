//! An existing interface as a port: a packet socket that hears everything that comes in there, and speaks in its place.
//!
//! Nothing about the interface is changed but its promiscuous mode, which ends with the socket, however the process ends. Its
//! offloads stay as they are: [`segment`] undoes them for what comes in, and what goes out is complete.
//!
//! An interface that goes down, or vanishes and comes back under the same name, is taken up again: neither needs a privilege.

pub(crate) mod socket;

use super::segment::joined::{self, Due, Message};
use super::segment::{self, Link};
use super::{Port, Take, Tell};
use crate::frame::{Frame, Malformed};
use narrows_core::Time;
use socket::PacketSocket;
use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Packets taken in at once; a slot of the ring may hold more.
const BATCH: usize = 64;
/// How often the kernel is asked whether the interface is still there, or there again.
const ASK: Duration = Duration::from_millis(5);

/// Whether an interface can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is there and up.
    Up,
    /// It is there but down.
    Down,
    /// There is none of its name.
    Gone,
}

/// Shows an interface's [`Presence`] to whoever does not own the port.
#[derive(Clone, Debug)]
pub struct Sight(Arc<AtomicU8>);

impl Sight {
    /// How it stands.
    pub fn presence(&self) -> Presence {
        match self.0.load(Ordering::Relaxed) {
            0 => Presence::Up,
            1 => Presence::Down,
            _ => Presence::Gone,
        }
    }
    fn set(&self, presence: Presence) {
        self.0.store(presence as u8, Ordering::Relaxed);
    }
}

/// An interface. It is let go when this is dropped.
pub struct Ring {
    name: String,
    socket: PacketSocket,
    index: c_int,
    sight: Sight,
    asked: Time,
    out: Vec<Due>,
    /// What they go as.
    messages: Vec<Message>,
}

impl Ring {
    /// Opens the interface called `name` in the namespace of this thread.
    ///
    /// # Errors
    /// `PermissionDenied` without root or CAP_NET_RAW; `NotFound` if there is no such interface; `Unsupported` if it does not
    /// carry Ethernet frames.
    pub fn open(name: &str) -> io::Result<Ring> {
        let socket = PacketSocket::open()?;
        let index = socket.index(name).map_err(|_| io::ErrorKind::NotFound)?;
        if !socket.is_ethernet(name)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let sight = Sight(Arc::default());
        let (asked, out, messages) = (Time::ZERO, Vec::new(), Vec::new());
        let ring = Ring { name: name.into(), socket, index, sight, asked, out, messages };
        ring.socket.bind(index)?;
        if !ring.socket.is_up(name)? {
            ring.sight.set(Presence::Down);
        }
        ring.socket.error(); // a socket bound to an interface that is down begins with an error, which is known now
        Ok(ring)
    }

    /// How the interface stands, for others to see.
    pub fn sight(&self) -> Sight {
        self.sight.clone()
    }

    /// Its largest IP packet.
    pub fn mtu(&self) -> io::Result<u32> {
        self.socket.mtu(&self.name).map(|mtu| mtu as u32)
    }

    /// Looks whether the interface is (still, again) there. The kernel ends the socket's hearing when an interface goes down and
    /// resumes it when the same one comes up; one made anew has another number.
    fn ask(&mut self, now: Time) -> io::Result<()> {
        self.asked = now;
        if self.socket.error().is_none() && self.sight.presence() == Presence::Up {
            return Ok(());
        }
        let presence = match (self.socket.index(&self.name), self.socket.is_up(&self.name)) {
            (Ok(index), Ok(true)) if index == self.index => Presence::Up,
            (Ok(index), Ok(true)) => match self.socket.bind(index) {
                Ok(()) => {
                    self.index = index;
                    Presence::Up
                }
                Err(e) if is_gone(&e) => Presence::Gone, // it went again between the question and the call
                Err(e) => return Err(e),
            },
            (Ok(_), Ok(false)) => Presence::Down,
            _ => Presence::Gone,
        };
        self.sight.set(presence);
        Ok(())
    }

    /// Hands everything in `out` to the kernel. What it refuses is lost, as at a card's full queue.
    fn push_out(&mut self, tell: Tell<'_>) {
        joined::messages(Link::Ethernet, &self.out, &mut self.messages);
        let (mut frames, mut rest) = (&self.out[..], &self.messages[..]);
        while !rest.is_empty() {
            let (mut parts, mut ends, mut from) = (Vec::<IoSlice<'_>>::new(), Vec::new(), frames);
            for message in rest.iter().take(socket::BATCH) {
                parts.extend(message.parts(from));
                ends.push(parts.len());
                from = &from[message.packets..];
            }
            let (done, went) = match self.socket.send(&parts, &ends) {
                Ok(sent) => (sent, true),
                Err(e) => {
                    let gone = is_gone(&e);
                    if gone && self.sight.presence() == Presence::Up {
                        self.sight.set(Presence::Down); // until it is asked
                    }
                    (if gone { rest.len() } else { 1 }, false)
                }
            };
            let (messages, others) = rest.split_at(done);
            let (these, later) = frames.split_at(messages.iter().map(|m| m.packets).sum());
            these.iter().for_each(|(_, frame)| tell(frame, went));
            (frames, rest) = (later, others);
        }
        self.out.clear();
    }
}

/// Whether an error says that the interface is down, or no more.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV))
}

impl Port for Ring {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn receive(&mut self, now: Time, take: Take<'_>) -> io::Result<()> {
        let mut taken = 0;
        while taken < BATCH {
            let before = taken;
            let mut take = |frame| {
                taken += 1;
                take(frame);
            };
            let more = self.socket.take(|received| {
                if !received.whole {
                    return take(Err(Malformed::Truncated));
                }
                // Whose checksum was unfinished, its checksum we make.
                let summed = received.offload.unfinished.is_some();
                let intact = |frame: Frame| if summed { frame.known_intact() } else { frame };
                let each = &mut |frame| take(Frame::ethernet(frame).map(intact));
                if let Err(why) =
                    segment::restore(Link::Ethernet, received.bytes, received.offload, received.tag, each)
                {
                    take(Err(why));
                }
            });
            if !more {
                // Readable, and yet nothing there: something has happened to the interface.
                if before == 0 && now.since(self.asked) >= ASK {
                    self.ask(now)?;
                }
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, _now: Time, due: Time, frame: Frame, _tell: Tell<'_>) {
        self.out.push((due, frame));
    }

    fn flush(&mut self, tell: Tell<'_>) {
        self.push_out(tell);
    }

    fn missed(&mut self) -> u64 {
        self.socket.missed().into()
    }

    fn wake_at(&self) -> Option<Time> {
        (self.sight.presence() != Presence::Up).then(|| self.asked + ASK)
    }
}
