//! Where packets come into the emulated network and leave it: a device of the kernel's, or an end of our own.

use crate::frame::{Frame, Malformed};
use narrows_core::Time;
use narrows_core::packet::Packet;
use segment::joined;
use std::io;
use std::os::fd::BorrowedFd;

pub mod end;
pub mod ring;
pub mod segment;
pub mod tun;

/// Takes what comes in: a frame, or why it is none.
pub type Take<'a> = &'a mut dyn FnMut(Result<Frame, Malformed>);

/// What could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unsent {
    /// Packets.
    pub packets: u64,
    /// Their bytes at the IP level.
    pub bytes: u64,
}

impl Unsent {
    /// These packets could not be sent either.
    fn add(&mut self, frames: &[joined::Due]) {
        self.packets += frames.len() as u64;
        self.bytes += frames.iter().map(|(_, f)| f.size().0).sum::<u64>();
    }
}

/// One edge of the emulated network. The gateway's thread owns it.
pub trait Port: Send {
    /// Becomes readable when packets wait; `None` for ends that live in this process.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Takes in what waits, at most a batch, so that what is due meanwhile leaves in time. An error means that the device is
    /// gone.
    fn receive(&mut self, now: Time, take: Take<'_>) -> io::Result<()>;
    /// Sends a packet that was to come out at `due`, now or at the next [`Port::flush`]. `false` if it could not be sent; the
    /// packet is then lost, and is counted.
    fn send(&mut self, now: Time, due: Time, frame: Frame) -> bool;
    /// Sends what [`Port::send`] has collected; what of it could not be sent.
    fn flush(&mut self) -> Unsent {
        Unsent::default()
    }
    /// How many packets have found no room to wait for [`Port::receive`], since the last call.
    fn missed(&mut self) -> u64 {
        0
    }
    /// When to call `receive` although nothing is readable.
    fn wake_at(&self) -> Option<Time> {
        None
    }
}
