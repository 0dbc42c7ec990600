//! A TCP segment in bytes (RFC 9293 section 3.1), its fields read where they lie.

use super::{Flags, HEADER, Options, Seq, options};
use crate::wire::checksum::Pseudo;
use crate::wire::{DecodeError, protocol, u16_at, u32_at};

/// A segment in bytes: header and options are known to lie within them, nothing else is checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Looks at `bytes`, a whole segment: TCP has no length of its own, the IP packet's end is the segment's.
    ///
    /// # Errors
    /// `Truncated` if there are fewer bytes than the header and its data offset announce; `Malformed` if the data offset does
    /// not even cover the header.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        if bytes.len() < HEADER as usize {
            return Err(DecodeError::Truncated);
        }
        let view = View(bytes);
        if view.header_len() < HEADER as usize {
            return Err(DecodeError::Malformed("data offset"));
        }
        if view.header_len() > bytes.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(view)
    }

    /// Bytes of the header, options included.
    pub const fn header_len(self) -> usize {
        (self.0[12] >> 4) as usize * 4
    }
    /// Source port.
    pub fn source(self) -> u16 {
        u16_at(self.0, 0)
    }
    /// Destination port.
    pub fn destination(self) -> u16 {
        u16_at(self.0, 2)
    }
    /// Sequence number.
    pub fn seq(self) -> Seq {
        Seq(u32_at(self.0, 4))
    }
    /// Acknowledgment number.
    pub fn ack(self) -> Seq {
        Seq(u32_at(self.0, 8))
    }
    /// Control bits.
    pub const fn flags(self) -> Flags {
        Flags(self.0[13])
    }
    /// Advertised window, not yet scaled.
    pub fn window(self) -> u16 {
        u16_at(self.0, 14)
    }
    /// The checksum.
    pub fn checksum(self) -> u16 {
        u16_at(self.0, 16)
    }
    /// Urgent pointer.
    pub fn urgent(self) -> u16 {
        u16_at(self.0, 18)
    }
    /// The options, not interpreted.
    pub fn options(self) -> &'a [u8] {
        &self.0[HEADER as usize..self.header_len()]
    }
    /// The options of a SYN.
    ///
    /// # Errors
    /// `Malformed` if an option reaches beyond the header, or has a length its kind does not allow.
    pub fn syn_options(self) -> Result<Options, DecodeError> {
        options::decode(self.options(), true)
    }
    /// Data.
    pub fn payload(self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
    /// Whether the checksum fits.
    pub fn is_intact(self, pseudo: Pseudo) -> bool {
        pseudo.over(protocol::TCP, self.0).is_intact()
    }
}
