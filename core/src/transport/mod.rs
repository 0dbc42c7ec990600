//! Transports: the ends that turn a byte stream into packets and back.

pub mod tcp;
pub mod udp;

use crate::time::Time;

/// A transport end. Hosts call [`Endpoint::receive`] for every packet that arrives, then [`Endpoint::transmit`] until it
/// yields nothing, and again at [`Endpoint::wake_at`].
pub trait Endpoint<P> {
    /// A packet arrived.
    fn receive(&mut self, now: Time, packet: P);
    /// Runs the timers that are due; gives the next packet to send, if any may leave now.
    fn transmit(&mut self, now: Time) -> Option<P>;
    /// When to call `transmit` again if nothing arrives before; `None` if never.
    fn wake_at(&self) -> Option<Time>;
}
