//! Headers, from the outside in. Each protocol has two forms: a *view* over received bytes that reads fields without copying,
//! and a validated *value* that the state machines use, with `decode` (bytes to value) and `encode` (value to bytes).

pub mod checksum;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;

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
