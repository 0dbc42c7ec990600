//! IPv4 (RFC 791; the ECN field, RFC 3168; DSCP, RFC 2474).
//!
//! Options are tolerated, not understood: they keep their length and are written back as no-operations. The reserved flag is
//! ignored. A packet in bytes may be followed by padding, as on Ethernet: `decode` cuts it off.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{Pseudo, Sum};
use super::{DecodeError, TooLong, protocol, u16_at, u32_at};
use crate::packet::{Body, Datagram, Ecn};

/// Bytes of a header without options.
pub const HEADER: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1FFF;
/// The option that does nothing (RFC 791 section 3.1).
const NO_OPERATION: u8 = 1;

/// An IPv4 packet in bytes: header and payload are known to lie within them, nothing else is checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Looks at `bytes`, which begin with an IPv4 header; what follows the packet is left out of the view.
    ///
    /// # Errors
    /// `Truncated` if there are fewer bytes than the header or its total length announces; `Malformed` if version or a length
    /// cannot be.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        let first = *bytes.first().ok_or(DecodeError::Truncated)?;
        if first >> 4 != 4 {
            return Err(DecodeError::Malformed("version"));
        }
        if bytes.len() < HEADER {
            return Err(DecodeError::Truncated);
        }
        let header = (first & 0xF) as usize * 4;
        let total = u16_at(bytes, 2) as usize;
        if header < HEADER {
            return Err(DecodeError::Malformed("header length"));
        }
        if total < header {
            return Err(DecodeError::Malformed("total length"));
        }
        bytes.get(..total).map(View).ok_or(DecodeError::Truncated)
    }

    /// Bytes of the header, options included.
    pub const fn header_len(self) -> usize {
        (self.0[0] & 0xF) as usize * 4
    }
    /// Differentiated services codepoint, 6 bits.
    pub const fn dscp(self) -> u8 {
        self.0[1] >> 2
    }
    /// The ECN field.
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0[1])
    }
    /// Which fragments belong together.
    pub fn identification(self) -> u16 {
        u16_at(self.0, 4)
    }
    /// Whether routers must not fragment it.
    pub fn dont_fragment(self) -> bool {
        u16_at(self.0, 6) & DONT_FRAGMENT != 0
    }
    /// Whether this is a fragment and not the last one.
    pub fn more_fragments(self) -> bool {
        u16_at(self.0, 6) & MORE_FRAGMENTS != 0
    }
    /// Where this fragment's payload belongs, in units of 8 bytes.
    pub fn fragment_offset(self) -> u16 {
        u16_at(self.0, 6) & FRAGMENT_OFFSET
    }
    /// Time to live, in hops.
    pub const fn ttl(self) -> u8 {
        self.0[8]
    }
    /// What the payload is: see [`protocol`].
    pub const fn protocol(self) -> u8 {
        self.0[9]
    }
    /// The header checksum.
    pub fn checksum(self) -> u16 {
        u16_at(self.0, 10)
    }
    /// Source address.
    pub fn source(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32_at(self.0, 12))
    }
    /// Destination address.
    pub fn destination(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32_at(self.0, 16))
    }
    /// The options, not interpreted.
    pub fn options(self) -> &'a [u8] {
        &self.0[HEADER..self.header_len()]
    }
    /// What the packet carries.
    pub fn payload(self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
    /// Whether the header checksum fits.
    pub fn is_intact(self) -> bool {
        Sum::default().bytes(&self.0[..self.header_len()]).is_intact()
    }
}

/// A header found to be right, or one to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// What the payload is: see [`protocol`].
    pub protocol: u8,
    /// Bytes of the payload.
    pub payload: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Differentiated services codepoint, 6 bits.
    pub dscp: u8,
    /// The ECN field.
    pub ecn: Ecn,
    /// Which fragments belong together.
    pub identification: u16,
    /// Whether routers must not fragment it.
    pub dont_fragment: bool,
    /// Whether this is a fragment and not the last one.
    pub more_fragments: bool,
    /// Where this fragment's payload belongs, in units of 8 bytes, 13 bits.
    pub fragment_offset: u16,
    /// Bytes of options: a multiple of 4, at most 40.
    pub options: u8,
}

impl Header {
    /// The header of an unfragmentable packet with a hop limit of 64 (RFC 1700's default) and no options.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: u16) -> Header {
        Header {
            source,
            destination,
            protocol,
            payload,
            ttl: 64,
            dscp: 0,
            ecn: Ecn::NotEct,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: 0,
        }
    }

    /// The header at the start of `bytes`, and the payload behind it.
    ///
    /// # Errors
    /// As [`View::new`]; `Checksum` if the header checksum does not fit.
    pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
        let view = View::new(bytes)?;
        if !view.is_intact() {
            return Err(DecodeError::Checksum);
        }
        let header = Header {
            source: view.source(),
            destination: view.destination(),
            protocol: view.protocol(),
            payload: view.payload().len() as u16, // at most the total length, a u16
            ttl: view.ttl(),
            dscp: view.dscp(),
            ecn: view.ecn(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset: view.fragment_offset(),
            options: view.options().len() as u8, // at most 40
        };
        Ok((header, view.payload()))
    }

    /// Appends the header to `out`, options as no-operations, checksum filled in. Bits that a field has no room for are left
    /// off; a length of options that cannot be is rounded up to a multiple of 4, and down to 40.
    ///
    /// # Errors
    /// [`TooLong`] if header and payload exceed 65535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let options = self.options.min(40).next_multiple_of(4) as u16;
        let header = HEADER as u16 + options;
        let total = self.payload.checked_add(header).ok_or(TooLong)?;
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 };

        let start = out.len();
        out.extend([0x40 | (header / 4) as u8, self.dscp << 2 | self.ecn as u8]);
        out.extend(total.to_be_bytes());
        out.extend(self.identification.to_be_bytes());
        out.extend((flags | self.fragment_offset & FRAGMENT_OFFSET).to_be_bytes());
        out.extend([self.ttl, self.protocol, 0, 0]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.resize(out.len() + options as usize, NO_OPERATION);
        let checksum = Sum::default().bytes(&out[start..]).checksum();
        out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// Appends a simulated packet to `out` as the IPv4 packet it stands for: its header, its transport header with a valid checksum,
/// and zeros for the payload of which the simulator only knows the length.
///
/// # Errors
/// [`TooLong`] if the packet exceeds 65535 bytes; `out` is as before.
pub fn encode_datagram(
    datagram: &Datagram,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    identification: u16,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let (protocol, size) = match &datagram.body {
        Body::Tcp(segment) => (protocol::TCP, segment.size()),
        Body::Udp(message) => (protocol::UDP, message.size()),
    };
    let payload = u16::try_from(size).map_err(|_| TooLong)?;
    let header = Header::new(source, destination, protocol, payload);
    Header { ecn: datagram.ecn, identification, ..header }.encode(out)?;
    let pseudo = Pseudo::v4(source, destination);
    match &datagram.body {
        Body::Tcp(segment) => segment.encode(pseudo, out),
        Body::Udp(message) => message.encode(pseudo, out)?, // its size was found to fit above
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Direction, FlowId};
    use crate::wire::tcp::{Flags, Length, Segment, Seq, Timestamps};
    use crate::wire::udp::Message;
    use alloc::vec;
    use proptest::prelude::*;

    /// The header by which checksums are usually taught: 172.16.10.99 to 172.16.10.12, TCP, 60 bytes, checksum 0xB1E6.
    const TAUGHT: [u8; 20] = [
        0x45, 0x00, 0x00, 0x3C, 0x1C, 0x46, 0x40, 0x00, 0x40, 0x06, 0xB1, 0xE6, 0xAC, 0x10, 0x0A, 0x63, 0xAC,
        0x10, 0x0A, 0x0C,
    ];

    #[test]
    fn a_known_header_reads_and_writes_itself() {
        let mut packet = vec![0; 60];
        packet[..20].copy_from_slice(&TAUGHT);
        let (header, payload) = Header::decode(&packet).unwrap();
        let (source, destination) = (Ipv4Addr::new(172, 16, 10, 99), Ipv4Addr::new(172, 16, 10, 12));
        let expected = Header::new(source, destination, protocol::TCP, 40);
        assert_eq!(header, Header { identification: 0x1C46, ..expected });
        assert_eq!(payload, [0; 40]);
        let mut written = vec![];
        header.encode(&mut written).unwrap();
        assert_eq!(written, TAUGHT);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused_for_its_own_reason() {
        let refusal = |at: usize, byte: u8| {
            let mut packet = [0; 60];
            packet[..20].copy_from_slice(&TAUGHT);
            packet[at] = byte;
            Header::decode(&packet).unwrap_err()
        };
        assert_eq!(refusal(0, 0x65), DecodeError::Malformed("version"));
        assert_eq!(refusal(0, 0x44), DecodeError::Malformed("header length"));
        assert_eq!(refusal(3, 19), DecodeError::Malformed("total length"));
        assert_eq!(refusal(3, 61), DecodeError::Truncated);
        assert_eq!(refusal(8, 0x41), DecodeError::Checksum);
        let mut shorter_than_its_options = vec![0; 24];
        shorter_than_its_options[..4].copy_from_slice(&[0x46, 0, 0, 23]);
        assert_eq!(Header::decode(&shorter_than_its_options), Err(DecodeError::Malformed("total length")));
    }

    #[test]
    fn a_payload_beyond_65535_bytes_is_refused_before_anything_is_written() {
        let mut out = vec![];
        let header = Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, protocol::TCP, 65516);
        assert_eq!((header.encode(&mut out), out.len()), (Err(TooLong), 0));
        let giant = Segment { payload: Length(70_000), ..Segment::default() };
        let giant = Datagram::tcp(FlowId(0), Direction::Forward, Ecn::NotEct, giant);
        let refused = encode_datagram(&giant, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0, &mut out);
        assert_eq!((refused, out.len()), (Err(TooLong), 0));
    }

    #[test]
    fn a_simulated_segment_becomes_a_packet_of_its_size_with_valid_checksums() {
        let mut segment = Segment { source: 1, destination: 2, flags: Flags::ACK, ..Segment::default() };
        (segment.seq, segment.payload) = (Seq(7), Length(1448));
        segment.options.timestamps = Some(Timestamps { value: 3, echo: 4 });
        let packet = Datagram::tcp(FlowId(0), Direction::Forward, Ecn::Ce, segment.clone());
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut bytes = vec![];
        encode_datagram(&packet, source, destination, 9, &mut bytes).unwrap();

        assert_eq!(bytes.len(), packet.size as usize);
        let (header, payload) = Header::decode(&bytes).unwrap();
        assert_eq!((header.ecn, header.identification, header.protocol), (Ecn::Ce, 9, protocol::TCP));
        let read = Segment::decode(payload, Some(Pseudo::v4(source, destination))).unwrap();
        assert_eq!((read.seq, read.options, read.payload), (segment.seq, segment.options, &[0; 1448][..]));
    }

    #[test]
    fn a_simulated_message_keeps_its_number() {
        let message = Message { source: 1, destination: 2, length: 100, number: 1 << 40 };
        let packet = Datagram::udp(FlowId(0), Direction::Forward, message);
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut bytes = vec![];
        encode_datagram(&packet, source, destination, 0, &mut bytes).unwrap();
        assert_eq!(bytes.len(), packet.size as usize);
        let (_, payload) = Header::decode(&bytes).unwrap();
        assert_eq!(Message::decode(payload, Some(Pseudo::v4(source, destination))), Ok(message));
    }

    prop_compose! {
        fn any_header()(
            addresses: (u32, u32), protocol: u8, ttl: u8, identification: u16, fragments: (bool, bool),
            dscp in 0u8..64, ecn in 0u8..4, fragment_offset in 0u16..1 << 13, options in 0u8..=10, payload in 0u16..=500,
        ) -> Header {
            Header {
                source: addresses.0.into(), destination: addresses.1.into(), protocol, payload, ttl, dscp,
                ecn: Ecn::from_bits(ecn), identification, dont_fragment: fragments.0, more_fragments: fragments.1,
                fragment_offset, options: options * 4,
            }
        }
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire_whole_or_not_at_all(header in any_header(), padding in 0usize..50) {
            let mut bytes = vec![];
            header.encode(&mut bytes).unwrap();
            bytes.resize(bytes.len() + header.payload as usize, 0xAA);
            let packet = bytes.len();
            bytes.resize(packet + padding, 0xBB);
            prop_assert_eq!(Header::decode(&bytes), Ok((header, &vec![0xAA; header.payload as usize][..])));
            for len in 0..packet {
                prop_assert_eq!(Header::decode(&bytes[..len]), Err(DecodeError::Truncated));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes: Vec<u8>) {
            let _ = Header::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | *first & 0xF;
            }
            let _ = Header::decode(&bytes);
        }
    }
}
