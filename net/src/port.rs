//! Where packets come into the emulated network and leave it: a device of the kernel's, or an end of our own.

use crate::frame::{Frame, Malformed};
use narrows_core::Time;
use std::io;
use std::os::fd::BorrowedFd;

pub mod end;
pub mod ring;
pub mod segment;
pub mod tun;

/// Takes what comes in: a frame, or why it is none.
pub type Take<'a> = &'a mut dyn FnMut(Result<Frame, Malformed>);

/// Is told what became of a packet: `true` if the device has taken it; otherwise it is lost.
pub type Tell<'a> = &'a mut dyn FnMut(&Frame, bool);

/// One edge of the emulated network. The gateway's thread owns it.
pub trait Port: Send {
    /// Becomes readable when packets wait; `None` for ends that live in this process.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Takes in what waits, at most a batch, so that what is due meanwhile leaves in time. An error means that the device is
    /// gone.
    fn receive(&mut self, now: Time, take: Take<'_>) -> io::Result<()>;
    /// Sends a packet that was to come out at `due`, now or at the next [`Port::flush`]; then it tells what became of it.
    fn send(&mut self, now: Time, due: Time, frame: Frame, tell: Tell<'_>);
    /// Sends what [`Port::send`] has collected, and tells of each packet, in order, what became of it.
    fn flush(&mut self, _tell: Tell<'_>) {}
    /// How many packets have found no room to wait for [`Port::receive`], since the last call.
    fn missed(&mut self) -> u64 {
        0
    }
    /// When to call `receive` although nothing is readable.
    fn wake_at(&self) -> Option<Time> {
        None
    }
}
