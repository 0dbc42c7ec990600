//! What travels: the few properties a queue may look at ([`Packet`]), and the value the simulator moves ([`Datagram`]).

use crate::ackwin::{Look, Passing};
use crate::units::Bytes;
use crate::wire::{tcp, udp};

/// Which flow of the scenario a packet belongs to. Real hosts derive it from the 5-tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct FlowId(pub u32);

/// The ECN field of the IP header (RFC 3168 section 5). The discriminants are the bits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, codepoint ECT(1).
    Ect1 = 0b01,
    /// ECN-capable, codepoint ECT(0): what RFC 3168 senders use.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// The codepoint in the two low bits of `bits`.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// What a queue discipline may know of a packet.
pub trait Packet {
    /// Size at the IP level, headers included.
    fn size(&self) -> Bytes;
    /// The flow it belongs to.
    fn flow(&self) -> FlowId;
    /// Its ECN codepoint.
    fn ecn(&self) -> Ecn;
    /// The number of the class it belongs to, from a classifier; where nothing has classified it, its flow.
    #[inline]
    fn class(&self) -> u32 {
        self.flow().0
    }
    /// Marks congestion experienced; `false`, and nothing changed, if the packet is not ECN-capable.
    fn mark_ce(&mut self) -> bool;
}

/// Which way a packet of a flow travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Direction {
    /// From the flow's source to its destination: data.
    #[default]
    Forward,
    /// From destination to source: acknowledgments.
    Backward,
}

/// An IP packet as a value: what the simulator moves, and what real hosts encode. The payload is a length.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Data or acknowledgments.
    pub direction: Direction,
    /// The ECN field.
    pub ecn: Ecn,
    /// Bytes at the IP level.
    pub size: u32,
    /// What the IP packet carries.
    pub body: Body,
}

/// The transport unit inside a [`Datagram`].
#[derive(Clone, Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(tcp::Segment),
    /// A UDP datagram.
    Udp(udp::Message),
}

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER: u32 = 20;

impl Datagram {
    /// A TCP segment in an IPv4 packet.
    #[inline]
    pub fn tcp(flow: FlowId, direction: Direction, ecn: Ecn, segment: tcp::Segment) -> Datagram {
        let size = IPV4_HEADER + segment.size();
        Datagram { flow, direction, ecn, size, body: Body::Tcp(segment) }
    }

    /// A UDP message in an IPv4 packet.
    #[inline]
    pub fn udp(flow: FlowId, direction: Direction, message: udp::Message) -> Datagram {
        let size = IPV4_HEADER + message.size();
        Datagram { flow, direction, ecn: Ecn::NotEct, size, body: Body::Udp(message) }
    }
}

impl Packet for Datagram {
    #[inline]
    fn size(&self) -> Bytes {
        Bytes(self.size as u64)
    }
    #[inline]
    fn flow(&self) -> FlowId {
        self.flow
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn != Ecn::NotEct;
        if capable {
            self.ecn = Ecn::Ce;
        }
        capable
    }
}

impl Passing for Datagram {
    #[inline]
    fn look(&self) -> Option<Look> {
        let Body::Tcp(segment) = &self.body else { return None };
        Some(Look {
            connection: self.flow.0 as u64,
            flags: segment.flags,
            ack: segment.ack,
            window: segment.window,
            mss: segment.options.mss,
            scale: segment.options.window_scale,
            payload: segment.payload.0,
        })
    }

    #[inline]
    fn set_window(&mut self, window: u16) {
        if let Body::Tcp(segment) = &mut self.body {
            segment.window = window;
        }
    }

    fn add_state(&mut self, state: tcp::RouterState) -> bool {
        let Body::Tcp(segment) = &mut self.body else { return false };
        let before = segment.size();
        // A SYN only says who understands; and what has data is as large as the path takes.
        let bare = segment.payload.0 == 0 && !segment.flags.has(tcp::Flags::SYN);
        let added = bare && segment.options.add_state(state);
        self.size += segment.size() - before;
        added
    }
}
