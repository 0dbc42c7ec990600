//! A packet on its way over lines, and what goes with it.

use narrows_core::ackwin::{Look, Passing};
use narrows_core::packet::Packet;
use narrows_core::wire::framing::Framing;
use narrows_core::wire::tcp::RouterState;
use narrows_core::{Bytes, Ecn, FlowId, Time};

/// A packet under way: what it is, where it goes next, and since when it waits.
pub struct Carried<P> {
    /// The packet.
    pub packet: P,
    /// Index into the table of ways: the next line it takes.
    pub hop: u32,
    /// When it entered the queue it is in, and whether it came there marked.
    pub(super) enqueued: Time,
    pub(super) marked: bool,
    /// How the line that it is on frames it.
    pub(super) framing: Framing,
    /// The line whose router wrote the window last, counted from 1; 0: none did. And when it did.
    pub(super) writer: u16,
    pub(super) written: Time,
    /// The number of its class on the line it is on; [`UNCLASSIFIED`] if that has none.
    pub(super) class: u32,
}

/// Where no classes are declared, a packet's flow is its class.
pub(super) const UNCLASSIFIED: u32 = u32::MAX;

impl<P> Carried<P> {
    /// A packet at the start of its way.
    #[inline]
    pub fn new(packet: P, hop: u32) -> Self {
        Carried {
            packet,
            hop,
            enqueued: Time::ZERO,
            marked: false,
            framing: Framing::None,
            writer: 0,
            written: Time::ZERO,
            class: UNCLASSIFIED,
        }
    }

    /// The line whose router has written the least window into it, if any has, and when: the bottleneck, as the routers see it.
    #[inline]
    pub fn written(&self) -> Option<Written> {
        let line = (self.writer as usize).checked_sub(1)?;
        Some(Written { line, at: self.written })
    }
}

/// A window that a router wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The line before which the router stands.
    pub line: usize,
    /// When.
    pub at: Time,
}

impl<P: Packet> Packet for Carried<P> {
    /// As the line it is on has to carry it.
    #[inline]
    fn size(&self) -> Bytes {
        Bytes(self.framing.size(self.packet.size().0))
    }
    #[inline]
    fn flow(&self) -> FlowId {
        self.packet.flow()
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }
    #[inline]
    fn class(&self) -> u32 {
        if self.class == UNCLASSIFIED { self.packet.class() } else { self.class }
    }
    #[inline]
    fn mark_ce(&mut self) -> bool {
        self.packet.mark_ce()
    }
}

impl<P: Passing> Passing for Carried<P> {
    #[inline]
    fn look(&self) -> Option<Look> {
        self.packet.look()
    }
    #[inline]
    fn set_window(&mut self, window: u16) {
        self.packet.set_window(window);
    }
    fn add_state(&mut self, state: RouterState) -> bool {
        self.packet.add_state(state)
    }
}
