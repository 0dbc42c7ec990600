//! Headers, from the outside in. Each protocol has two forms: a *view* over received bytes that reads fields without copying,
//! and a validated *value* that the state machines use, with `decode` (bytes to value) and `encode` (value to bytes).
//!
//! A view is cheap and lenient: it only promises that every field it names lies within the bytes. A value is what was found
//! to be right, checksums included. What this project does not speak (IPv4 options, unknown TCP options) is stepped over.

pub mod checksum;
pub mod frame_relay;
pub mod framing;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;

/// Protocol and next-header numbers (IANA, "Assigned Internet Protocol Numbers").
pub mod protocol {
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Fewer bytes than the header needs or announces.
    Truncated,
    /// A field has a value the protocol does not allow; the name says which.
    Malformed(&'static str),
    /// The checksum does not fit the bytes.
    Checksum,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("fewer bytes than the header announces"),
            DecodeError::Malformed(field) => write!(f, "not allowed in field {field}"),
            DecodeError::Checksum => f.write_str("wrong checksum"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// The value needs more bytes than a 16-bit length field can announce. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl core::fmt::Display for TooLong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("longer than the 65535 bytes that the length field can announce")
    }
}

impl core::error::Error for TooLong {}

/// The 16-bit field at `at`, in network byte order. Views call it within the bounds they checked when they were made.
#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit field at `at`, in network byte order; bounds as for [`u16_at`].
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
