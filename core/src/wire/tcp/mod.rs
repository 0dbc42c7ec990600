//! TCP segments (RFC 9293 section 3.1) and the options this project speaks: MSS, window scale and timestamps (RFC 7323),
//! SACK (RFC 2018), and [`states`] of routers (RFC 6994).
//!
//! [`Segment`] is the value. Its payload is a type parameter: a [`Length`] in the simulator, bytes on real hosts. [`View`] reads a
//! segment in bytes.

mod codec;
mod options;
pub mod states;
mod view;

pub use states::{RouterState, RouterStates};
pub use view::View;

use crate::packet::Ecn;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::BitOr;

/// A sequence number: arithmetic is modulo 2^32 (RFC 9293 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// This number advanced by `n`.
    #[inline]
    pub const fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
    /// How far this is ahead of `other`; negative if behind. Meaningful within half the number space.
    #[inline]
    pub const fn ahead_of(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, o: Flags) -> Flags {
        Flags(self.0 | o.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in "FSRPAUEC".chars().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// The timestamps option (RFC 7323 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the value being echoed; 0 if none.
    pub echo: u32,
}

/// Up to four blocks of received, not yet acknowledged data, most recent first (RFC 2018 section 4): `[start, end)`. Most segments
/// have none, and so they are elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks(Option<Box<Blocks>>);

/// At least one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Blocks {
    blocks: [(Seq, Seq); 4],
    len: u8,
}

impl SackBlocks {
    /// How many blocks fit beside a timestamps option, and without it, into 40 bytes of options.
    pub const fn room(timestamps: bool) -> usize {
        if timestamps { 3 } else { 4 }
    }
    /// Adds a block behind the others; a fifth is ignored.
    pub fn push(&mut self, start: Seq, end: Seq) {
        let all = self.0.get_or_insert_default();
        if let Some(slot) = all.blocks.get_mut(all.len as usize) {
            *slot = (start, end);
            all.len += 1;
        }
    }
    /// The blocks, in order.
    #[inline]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        self.0.as_ref().map_or(&[], |all| &all.blocks[..all.len as usize])
    }
    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
    /// Bytes of the option, without padding; 0 if there is none.
    #[inline]
    const fn bytes(&self) -> u32 {
        match &self.0 {
            Some(all) => 2 + 8 * all.len as u32,
            None => 0,
        }
    }
}

/// The options of one segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size (SYN only).
    pub mss: Option<u16>,
    /// Window scale shift, 0 to 14 (SYN only).
    pub window_scale: Option<u8>,
    /// SACK permitted (SYN only).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// States of routers; without any, an invitation to add them. Rare, and so elsewhere: every packet of a run is moved with its
    /// options, and those of 34 bytes more made it slower by a third.
    pub states: Option<Box<RouterStates>>,
}

impl Options {
    /// Bytes that a header has for options: its length field says at most 60 (RFC 9293 section 3.1).
    pub const ROOM: u32 = 60 - HEADER;

    /// Bytes on the wire: each option padded with NOPs to a multiple of four, as BSD and Linux write them, if there is room for
    /// the NOPs. Never over [`Options::ROOM`]: what does not fit is left off, SACK blocks first (see [`SackBlocks::room`]).
    #[inline]
    pub const fn size(&self) -> u32 {
        let n = self.padded_size();
        if n <= Self::ROOM {
            return n;
        }
        let n = self.tight_size();
        if n > Self::ROOM { Self::ROOM } else { n }
    }

    /// Whether NOPs between the options are left out: only without them everything fits.
    const fn is_tight(&self) -> bool {
        self.padded_size() > Self::ROOM && self.tight_size() <= Self::ROOM
    }

    #[inline]
    const fn padded_size(&self) -> u32 {
        let mut n = 0;
        if self.mss.is_some() {
            n += 4;
        }
        if self.window_scale.is_some() {
            n += 4; // NOP + 3
        }
        if self.timestamps.is_some() {
            n += 12; // NOP NOP + 10
        } else if self.sack_permitted {
            n += 4; // NOP NOP + 2; beside timestamps it takes the place of their two NOPs
        }
        if let Some(states) = &self.states {
            n += states.bytes().next_multiple_of(4); // NOP NOP + 4 + 10n, if that is odd
        }
        n += self.sack.bytes().next_multiple_of(4); // NOP NOP + 2 + 8n
        n
    }

    /// Without NOPs but those at the end.
    const fn tight_size(&self) -> u32 {
        let mut n = 0;
        if self.mss.is_some() {
            n += 4;
        }
        if self.window_scale.is_some() {
            n += 3;
        }
        if self.timestamps.is_some() {
            n += 10;
        }
        if self.sack_permitted {
            n += 2;
        }
        if let Some(states) = &self.states {
            n += states.bytes();
        }
        n += self.sack.bytes();
        n.next_multiple_of(4)
    }
}

/// What a segment carries.
pub trait Payload: Clone + Default + fmt::Debug {
    /// Bytes of it.
    fn len(&self) -> u32;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends its bytes to `out`.
    fn write(&self, out: &mut Vec<u8>);
}

/// A payload of which only the length exists: what the simulator moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length(pub u32);

impl Payload for Length {
    #[inline]
    fn len(&self) -> u32 {
        self.0
    }
    /// Zeros: any bytes would do.
    fn write(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.0 as usize, 0);
    }
}

impl Payload for Vec<u8> {
    fn len(&self) -> u32 {
        self.as_slice().len() as u32
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl Payload for &[u8] {
    fn len(&self) -> u32 {
        <[u8]>::len(self) as u32
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// Bytes of a TCP header without options.
pub const HEADER: u32 = 20;

/// A TCP segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment<P = Length> {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte (or of the SYN).
    pub seq: Seq,
    /// Next sequence number expected, if `flags` has ACK.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Advertised window, not yet scaled.
    pub window: u16,
    /// Urgent pointer; only meaningful with URG.
    pub urgent: u16,
    /// The ECN field of the IP header around it: no part of the segment's bytes, but the transport's to say and to know (RFC 3168
    /// section 6.1). Decoding leaves it at `NotEct`.
    pub ecn: Ecn,
    /// Options.
    pub options: Options,
    /// Data.
    pub payload: P,
}

impl<P: Payload> Segment<P> {
    /// Bytes at the TCP level: header, options and payload.
    #[inline]
    pub fn size(&self) -> u32 {
        HEADER + self.options.size() + self.payload.len()
    }

    /// How much sequence space it occupies: data, SYN and FIN.
    #[inline]
    pub fn span(&self) -> u32 {
        self.payload.len() + self.flags.has(Flags::SYN) as u32 + self.flags.has(Flags::FIN) as u32
    }
}
