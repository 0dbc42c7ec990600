//! UDP (RFC 768).

/// Bytes of a UDP header.
pub const HEADER: u32 = 8;

/// A UDP datagram of which only the payload's length exists: what the simulator moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Payload bytes.
    pub length: u32,
    /// The sender's count of datagrams, carried at the head of the payload, so that the sink can tell what was lost.
    pub number: u64,
}

impl Message {
    /// Bytes at the UDP level.
    #[inline]
    pub const fn size(&self) -> u32 {
        HEADER + self.length
    }
}
