//! IPv6 (RFC 8200): the fixed header as view and value, and the walk along its extension headers to what the packet carries.
//!
//! Deviations: jumbograms (RFC 2675) are not spoken: their payload length of zero is taken at its word. Extension headers are
//! walked, not obeyed: options and routing types stay uninterpreted. ESP and AH end the walk like an upper layer.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::{DecodeError, u16_at, u32_at};
use crate::packet::Ecn;

/// Bytes of the fixed header.
pub const HEADER: usize = 40;

/// Extension headers, by their next-header number.
mod extension {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const DESTINATION: u8 = 60;
}

/// An IPv6 packet in bytes: header and payload are known to lie within them, nothing else is checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Looks at `bytes`, which begin with an IPv6 header; what follows the packet is left out of the view.
    ///
    /// # Errors
    /// `Truncated` if there are fewer bytes than the header or its payload length announces; `Malformed` if the version is
    /// not 6.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        let first = *bytes.first().ok_or(DecodeError::Truncated)?;
        if first >> 4 != 6 {
            return Err(DecodeError::Malformed("version"));
        }
        if bytes.len() < HEADER {
            return Err(DecodeError::Truncated);
        }
        bytes.get(..HEADER + u16_at(bytes, 4) as usize).map(View).ok_or(DecodeError::Truncated)
    }

    fn traffic_class(self) -> u8 {
        (u16_at(self.0, 0) >> 4) as u8
    }
    /// Differentiated services codepoint, 6 bits.
    pub fn dscp(self) -> u8 {
        self.traffic_class() >> 2
    }
    /// The ECN field.
    pub fn ecn(self) -> Ecn {
        Ecn::from_bits(self.traffic_class())
    }
    /// The flow label (RFC 6437), 20 bits.
    pub fn flow_label(self) -> u32 {
        u32_at(self.0, 0) & 0xF_FFFF
    }
    /// What follows the fixed header: an extension header or the upper layer.
    pub const fn next_header(self) -> u8 {
        self.0[6]
    }
    /// How many hops it may still take.
    pub const fn hop_limit(self) -> u8 {
        self.0[7]
    }
    /// Source address.
    pub fn source(self) -> Ipv6Addr {
        address(self.0, 8)
    }
    /// Destination address.
    pub fn destination(self) -> Ipv6Addr {
        address(self.0, 24)
    }
    /// Everything behind the fixed header, extension headers included.
    pub fn payload(self) -> &'a [u8] {
        &self.0[HEADER..]
    }
    /// What the packet carries behind its extension headers.
    ///
    /// # Errors
    /// As [`upper`].
    pub fn upper(self) -> Result<Upper<'a>, DecodeError> {
        upper(self.next_header(), self.payload())
    }
}

fn address(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    octets.into()
}

/// A fixed header found to be right, or one to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// What follows: an extension header or the upper layer.
    pub next_header: u8,
    /// Bytes behind the fixed header, extension headers included.
    pub payload: u16,
    /// How many hops it may still take.
    pub hop_limit: u8,
    /// Differentiated services codepoint, 6 bits.
    pub dscp: u8,
    /// The ECN field.
    pub ecn: Ecn,
    /// The flow label, 20 bits.
    pub flow_label: u32,
}

impl Header {
    /// The header at the start of `bytes`, and the payload behind it, for [`upper`] to walk.
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
        let view = View::new(bytes)?;
        let header = Header {
            source: view.source(),
            destination: view.destination(),
            next_header: view.next_header(),
            payload: view.payload().len() as u16, // as the 16-bit field said
            hop_limit: view.hop_limit(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            flow_label: view.flow_label(),
        };
        Ok((header, view.payload()))
    }

    /// Appends the header to `out`. Bits that a field has no room for are left off.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let class = self.dscp << 2 | self.ecn as u8;
        out.extend((6 << 28 | (class as u32) << 20 | self.flow_label & 0xF_FFFF).to_be_bytes());
        out.extend(self.payload.to_be_bytes());
        out.extend([self.next_header, self.hop_limit]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
    }
}

/// What a packet carries behind its extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper<'a> {
    /// What `payload` is: see [`super::protocol`].
    pub protocol: u8,
    /// The fragment header, if there was one. Unless its offset is zero, `payload` is from the middle of something.
    pub fragment: Option<Fragment>,
    /// The upper layer's bytes.
    pub payload: &'a [u8],
}

/// The fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Which fragments belong together.
    pub identification: u32,
    /// Where this fragment's payload belongs, in units of 8 bytes, 13 bits.
    pub offset: u16,
    /// Whether this is not the last one.
    pub more: bool,
}

/// Walks the extension headers at the start of `bytes`, the first of them named by `next_header`.
///
/// # Errors
/// `Truncated` if an extension header is longer than the packet; `Malformed` if hop-by-hop options are not the first header
/// (RFC 8200 section 4.1) or there is a second fragment header.
pub fn upper(next_header: u8, bytes: &[u8]) -> Result<Upper<'_>, DecodeError> {
    let mut upper = Upper { protocol: next_header, fragment: None, payload: bytes };
    let mut first = true;
    loop {
        let head = upper.payload;
        let len = match upper.protocol {
            extension::HOP_BY_HOP if !first => return Err(DecodeError::Malformed("hop-by-hop options")),
            extension::HOP_BY_HOP | extension::ROUTING | extension::DESTINATION => {
                (*head.get(1).ok_or(DecodeError::Truncated)? as usize + 1) * 8
            }
            extension::FRAGMENT if upper.fragment.is_some() => {
                return Err(DecodeError::Malformed("fragment header"));
            }
            extension::FRAGMENT => 8,
            _ => return Ok(upper),
        };
        upper.payload = head.get(len..).ok_or(DecodeError::Truncated)?;
        if upper.protocol == extension::FRAGMENT {
            let field = u16_at(head, 2);
            upper.fragment =
                Some(Fragment { identification: u32_at(head, 4), offset: field >> 3, more: field & 1 != 0 });
        }
        upper.protocol = head[0];
        first = false;
        if upper.fragment.is_some_and(|f| f.offset != 0) {
            return Ok(upper); // the headers that follow are in the first fragment
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::protocol;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn the_fields_are_where_rfc_8200_section_3_draws_them() {
        let mut bytes = vec![0x6B, 0x91, 0x23, 0x45, 0x00, 0x04, 17, 63];
        bytes.extend((0u8..32).chain([9, 9, 9, 9]));
        let (header, payload) = Header::decode(&bytes).unwrap();
        assert_eq!((header.dscp, header.ecn, header.flow_label), (46, Ecn::Ect1, 0x1_2345));
        assert_eq!((header.next_header, header.hop_limit, header.payload), (protocol::UDP, 63, 4));
        assert_eq!(header.source, "1:203:405:607:809:a0b:c0d:e0f".parse::<Ipv6Addr>().unwrap());
        assert_eq!(header.destination.octets()[15], 31);
        assert_eq!(payload, [9; 4]);
        assert_eq!(Header::decode(&[0x45; 60]), Err(DecodeError::Malformed("version")));
    }

    /// Hop-by-hop (8 bytes), routing (16), fragment (offset 0, more, 7), destination options (8), TCP.
    const CHAIN: [u8; 43] = [
        43, 0, 1, 4, 0, 0, 0, 0, // hop-by-hop, PadN
        44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // routing
        60, 0, 0, 1, 0, 0, 0, 7, // fragment
        6, 0, 1, 4, 0, 0, 0, 0, // destination options, PadN
        b't', b'c', b'p',
    ];

    #[test]
    fn extension_headers_lead_to_the_upper_layer() {
        let fragment = Some(Fragment { identification: 7, offset: 0, more: true });
        assert_eq!(upper(0, &CHAIN), Ok(Upper { protocol: protocol::TCP, fragment, payload: b"tcp" }));
        for len in 0..40 {
            assert_eq!(upper(0, &CHAIN[..len]), Err(DecodeError::Truncated), "cut at {len}");
        }
    }

    #[test]
    fn a_later_fragment_ends_the_walk_in_the_middle_of_something() {
        let mut later = CHAIN;
        later[27] = 8 | 1;
        let fragment = Some(Fragment { identification: 7, offset: 1, more: true });
        assert_eq!(upper(0, &later), Ok(Upper { protocol: 60, fragment, payload: &CHAIN[32..] }));
    }

    #[test]
    fn extension_headers_in_impossible_places_are_refused() {
        let hop_by_hop_twice = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(upper(0, &hop_by_hop_twice), Err(DecodeError::Malformed("hop-by-hop options")));
        let fragment_twice = [44, 0, 0, 1, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(upper(44, &fragment_twice), Err(DecodeError::Malformed("fragment header")));
    }

    prop_compose! {
        fn any_header()(
            addresses: (u128, u128), next_header: u8, hop_limit: u8,
            dscp in 0u8..64, ecn in 0u8..4, flow_label in 0u32..1 << 20, payload in 0u16..=500,
        ) -> Header {
            Header {
                source: addresses.0.into(), destination: addresses.1.into(), next_header, payload, hop_limit, dscp,
                ecn: Ecn::from_bits(ecn), flow_label,
            }
        }
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire_whole_or_not_at_all(header in any_header()) {
            let mut bytes = vec![];
            header.encode(&mut bytes);
            bytes.resize(HEADER + header.payload as usize, 0xAA);
            prop_assert_eq!(Header::decode(&bytes), Ok((header, &vec![0xAA; header.payload as usize][..])));
            for len in 0..bytes.len() {
                prop_assert_eq!(Header::decode(&bytes[..len]), Err(DecodeError::Truncated));
            }
        }

        #[test]
        fn no_chain_of_extension_headers_makes_it_panic(
            first in prop::sample::select(vec![0u8, 43, 44, 60]),
            bytes in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 43, 44, 60, 255]), 0..200),
        ) {
            if let Ok(upper) = upper(first, &bytes) {
                prop_assert!(bytes.ends_with(upper.payload));
            }
        }
    }
}
