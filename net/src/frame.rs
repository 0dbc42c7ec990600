//! A packet in bytes, and what a queue discipline may know of it. A frame is parsed once, when it comes in: size, ECN field and
//! flow are then at hand for every queue it meets. The only thing a queue changes is the ECN field, and the IPv4 header
//! checksum with it (RFC 1624); transport checksums do not cover either. A router that speaks through ACKs writes their window, or
//! adds its state to their options; checksums are updated then, not made anew, so that a broken one stays broken.
//!
//! Flows are 5-tuples. Fragments carry their ports in the first one only, so a fragmented datagram is a flow of its addresses
//! and protocol (RFC 6438 section 2 does the same for load sharing): its fragments then stay in order.

use narrows_core::ackwin::{Header, Look, Passing};
use narrows_core::packet::Packet;
use narrows_core::wire::checksum::Sum;
use narrows_core::wire::tcp::RouterState;
use narrows_core::wire::{DecodeError, checksum, ipv4, ipv6, protocol, tcp};
use narrows_core::{Bytes, Ecn, FlowId};
use std::cell::RefCell;
use std::net::IpAddr;

/// A real packet: an IP packet, behind an Ethernet header or not.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Buffer,
    /// Where the IP header begins, if this is an IP packet.
    ip: u16,
    ecn: Ecn,
    kind: Kind,
    /// Whether this process has made the transport checksum, so that it is known to be right.
    summed: bool,
    size: u32,
    flow: FlowId,
}

/// What a frame is, beside an ordinary packet: for the counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Kind {
    /// A whole IPv4 or IPv6 packet.
    #[default]
    Plain,
    /// A fragment.
    Fragment,
    /// IPv6 with extension headers (and no fragment).
    Extended,
    /// Not IP: ARP, for instance. It passes like any packet.
    NotIp,
}

/// Why bytes are not let in. Each is counted under its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Malformed {
    /// Fewer bytes than the headers need or announce.
    Truncated,
    /// A header field has a value the protocol does not allow.
    Field,
    /// The IPv4 header checksum is wrong.
    Checksum,
    /// Its checksum was left to a card, and is of a kind that is not known here (SCTP's CRC32c).
    UnknownChecksum,
    /// The kernel had no room left for it in the ring we read: nobody has seen it.
    RingFull,
}

impl Malformed {
    /// All of them, in order.
    pub const ALL: [Malformed; 5] = [
        Malformed::Truncated,
        Malformed::Field,
        Malformed::Checksum,
        Malformed::UnknownChecksum,
        Malformed::RingFull,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Truncated => "truncated",
            Malformed::Field => "bad_field",
            Malformed::Checksum => "bad_checksum",
            Malformed::UnknownChecksum => "unknown_checksum",
            Malformed::RingFull => "ring_full",
        }
    }
}

impl From<DecodeError> for Malformed {
    fn from(e: DecodeError) -> Malformed {
        match e {
            DecodeError::Truncated => Malformed::Truncated,
            DecodeError::Malformed(_) => Malformed::Field,
            DecodeError::Checksum => Malformed::Checksum,
        }
    }
}

/// Where a packet goes, and what distinguishes its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The transport.
    pub protocol: u8,
    /// Source and destination port; zero for fragments and for transports other than TCP and UDP.
    pub ports: (u16, u16),
}

/// Ethernet: two addresses and a type.
const ETHERNET: usize = 14;
/// An IEEE 802.1Q or 802.1ad tag.
const TAG: usize = 4;
/// No line of the internet may have a smaller MTU for hosts that are to be reached without fragments (RFC 791 section 3.1, RFC 1122
/// section 3.3.3): an ACK grows up to this, which it comes near with extension headers only.
const EVERY_LINE_TAKES: usize = 576;

impl Frame {
    /// An IP packet, as a TUN device gives it.
    pub fn ip(bytes: Vec<u8>) -> Result<Frame, Malformed> {
        Frame::at(bytes, 0)
    }

    /// An Ethernet frame, with any number of VLAN tags. What is not IP is let in as it is.
    pub fn ethernet(bytes: Vec<u8>) -> Result<Frame, Malformed> {
        let word = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let mut at = ETHERNET;
        loop {
            match word(at - 2).ok_or(Malformed::Truncated)? {
                0x8100 | 0x88A8 | 0x9100 => at += TAG,
                0x0800 | 0x86DD => return Frame::at(bytes, at),
                _ => return Ok(Frame::opaque(bytes)),
            }
        }
    }

    fn opaque(bytes: Vec<u8>) -> Frame {
        let size = (bytes.len() - ETHERNET) as u32;
        let half = |at: usize| bytes[at..at + 7].iter().fold(0, |word, b| word << 8 | *b as u64);
        let flow = hash([half(0), half(7)]);
        Frame { ip: 0, ecn: Ecn::NotEct, kind: Kind::NotIp, summed: false, size, flow, bytes: Buffer(bytes) }
    }

    fn at(bytes: Vec<u8>, ip: usize) -> Result<Frame, Malformed> {
        let packet = &bytes[ip..];
        let (size, ecn, kind, tuple) = match packet.first().map(|b| b >> 4) {
            Some(6) => {
                let v = ipv6::View::new(packet)?;
                let upper = v.upper()?;
                let kind = match upper.fragment {
                    Some(_) => Kind::Fragment,
                    None if upper.protocol != v.next_header() => Kind::Extended,
                    None => Kind::Plain,
                };
                let ends = (v.source().into(), v.destination().into());
                let size = ipv6::HEADER + v.payload().len();
                (size, v.ecn(), kind, tuple(ends, upper.protocol, kind, upper.payload))
            }
            _ => {
                let v = ipv4::View::new(packet)?;
                if !v.is_intact() {
                    return Err(Malformed::Checksum);
                }
                let whole = !v.more_fragments() && v.fragment_offset() == 0;
                let kind = if whole { Kind::Plain } else { Kind::Fragment };
                let ends = (v.source().into(), v.destination().into());
                let size = v.header_len() + v.payload().len();
                (size, v.ecn(), kind, tuple(ends, v.protocol(), kind, v.payload()))
            }
        };
        let flow = tuple.flow();
        Ok(Frame { ip: ip as u16, ecn, kind, summed: false, size: size as u32, flow, bytes: Buffer(bytes) })
    }

    /// All of its bytes, link header included: what goes out again.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes.0
    }

    /// The IP packet without what is around it; `None` if it is not IP.
    pub fn packet(&self) -> Option<&[u8]> {
        (self.kind != Kind::NotIp)
            .then(|| &self.bytes.0[self.ip as usize..self.ip as usize + self.size as usize])
    }

    /// Who sends to whom; `None` if it is not IP.
    pub fn tuple(&self) -> Option<Tuple> {
        let packet = self.packet()?;
        if packet[0] >> 4 == 6 {
            let v = ipv6::View::new(packet).ok()?;
            let upper = v.upper().ok()?;
            return Some(tuple(
                (v.source().into(), v.destination().into()),
                upper.protocol,
                self.kind,
                upper.payload,
            ));
        }
        let v = ipv4::View::new(packet).ok()?;
        Some(tuple((v.source().into(), v.destination().into()), v.protocol(), self.kind, v.payload()))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether a VLAN tag stands before the IP header.
    pub fn is_tagged(&self) -> bool {
        self.ip as usize > ETHERNET
    }

    /// Whether [`Frame::known_intact`] was said of it.
    pub fn is_summed(&self) -> bool {
        self.summed
    }

    /// The same packet, whose transport checksum this process has made itself.
    #[must_use]
    pub fn known_intact(self) -> Frame {
        Frame { summed: true, ..self }
    }

    /// The same packet as part of flow `flow`, for who knows better than the hash of the 5-tuple.
    #[must_use]
    pub fn of_flow(self, flow: FlowId) -> Frame {
        Frame { flow, ..self }
    }
}

fn tuple((source, destination): (IpAddr, IpAddr), protocol: u8, kind: Kind, upper: &[u8]) -> Tuple {
    let ports = match (protocol, kind, upper) {
        (protocol::TCP | protocol::UDP, Kind::Plain | Kind::Extended, [a, b, c, d, ..]) => {
            (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => (0, 0),
    };
    Tuple { source, destination, protocol, ports }
}

impl Tuple {
    /// The same number on every machine and in every run.
    fn flow(&self) -> FlowId {
        let words = |a: IpAddr| {
            let bits = match a {
                IpAddr::V4(a) => a.to_bits() as u128,
                IpAddr::V6(a) => a.to_bits(),
            };
            [(bits >> 64) as u64, bits as u64]
        };
        let ([a, b], [c, d]) = (words(self.source), words(self.destination));
        let (from, to) = self.ports;
        hash([a, b, c, d, (self.protocol as u64) << 32 | (from as u64) << 16 | to as u64])
    }
}

/// Multiplies by the golden ratio's 64 bits (Knuth, The Art of Computer Programming 6.4), word by word.
fn hash<const N: usize>(words: [u64; N]) -> FlowId {
    let mixed = words.into_iter().fold(0u64, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum ^ sum >> 32
    });
    FlowId(mixed as u32)
}

/// A frame's bytes. They are used again: for 1,500 bytes the allocator takes longer than a copy does.
#[derive(Debug)]
struct Buffer(Vec<u8>);

/// So many buffers are kept for the next frames, and none above that size.
const SPARES: usize = 4096;
const LARGEST_SPARE: usize = 16 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A copy of `bytes` for a frame, in a buffer that one before has left.
pub fn copy(bytes: &[u8]) -> Vec<u8> {
    joined([bytes])
}

/// A copy of `parts`, one behind the other, for a frame, in a buffer that one before has left.
pub fn joined<const N: usize>(parts: [&[u8]; N]) -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    let mut buffer = spare.ok().flatten().unwrap_or_default();
    buffer.clear();
    parts.into_iter().for_each(|part| buffer.extend_from_slice(part));
    buffer
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer(copy(&self.0))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if bytes.capacity() <= LARGEST_SPARE {
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARES {
                    spare.push(bytes);
                }
            }); // none are kept when the thread ends
        }
    }
}

impl Packet for Frame {
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
    /// RFC 3168 section 5: sets the two bits in the packet's header, and keeps an IPv4 header checksum right.
    fn mark_ce(&mut self) -> bool {
        if self.ecn == Ecn::NotEct {
            return false;
        }
        self.ecn = Ecn::Ce;
        let packet = &mut self.bytes.0[self.ip as usize..];
        if packet[0] >> 4 == 6 {
            packet[1] |= 0x30; // the low half of the traffic class begins in the second byte
        } else {
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 0b11;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            let sum = checksum::update(u16::from_be_bytes([packet[10], packet[11]]), old, new);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    }
}

impl Frame {
    /// The TCP header and what follows it, and the addresses as numbers; `None` if it is no whole TCP segment.
    #[inline]
    fn upper(&self) -> Option<((u64, u64), &[u8])> {
        if !matches!(self.kind, Kind::Plain | Kind::Extended) {
            return None;
        }
        let packet = self.packet()?;
        let (protocol, upper, ends) = if packet[0] >> 4 == 6 {
            let v = ipv6::View::new(packet).ok()?;
            let upper = v.upper().ok()?;
            let [a, b] =
                [v.source(), v.destination()].map(|a| a.to_bits()).map(|a| a as u64 ^ (a >> 64) as u64);
            (upper.protocol, upper.payload, (a, b))
        } else {
            let v = ipv4::View::new(packet).ok()?;
            let [a, b] = [v.source(), v.destination()].map(|a| u64::from(a.to_bits()));
            (v.protocol(), v.payload(), (a, b))
        };
        (protocol == protocol::TCP).then_some((ends, upper))
    }

    /// Its TCP header, and the number of its connection.
    fn segment(&self) -> Option<(tcp::View<'_>, u64)> {
        let (ends, upper) = self.upper()?;
        let view = tcp::View::new(upper).ok()?;
        // The same number in both directions.
        let end = |address: u64, port: u16| {
            (address ^ u64::from(port) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
        };
        let connection = end(ends.0, view.source()).wrapping_add(end(ends.1, view.destination()));
        Some((view, connection))
    }
}

impl Passing for Frame {
    fn header(&self) -> Option<Header> {
        let (tuple, packet) = (self.tuple()?, self.packet()?);
        let dscp = match packet[0] >> 4 {
            6 => (packet[0] & 0xF) << 2 | packet[1] >> 6,
            _ => packet[1] >> 2,
        };
        let Tuple { source, destination, protocol, ports } = tuple;
        // No port is zero; a fragment's are not known.
        Some(Header { source, destination, protocol, ports: (ports != (0, 0)).then_some(ports), dscp })
    }

    fn look(&self) -> Option<Look> {
        let (view, connection) = self.segment()?;
        let flags = view.flags();
        let syn = if flags.has(tcp::Flags::SYN) { view.syn_options().ok()? } else { tcp::Options::default() };
        Some(Look {
            connection,
            flags,
            ack: view.ack(),
            window: view.window(),
            mss: syn.mss,
            scale: syn.window_scale,
            payload: view.payload().len() as u32,
        })
    }

    fn set_window(&mut self, window: u16) {
        let Some((_, upper)) = self.upper() else { return };
        let Ok(view) = tcp::View::new(upper) else { return };
        let sum = checksum::update(view.checksum(), view.window(), window);
        let (end, length) = (self.ip as usize + self.size as usize, upper.len());
        let header = &mut self.bytes.0[end - length..];
        header[14..16].copy_from_slice(&window.to_be_bytes());
        header[16..18].copy_from_slice(&sum.to_be_bytes());
    }

    fn add_state(&mut self, state: RouterState) -> bool {
        let Some((view, _)) = self.segment() else { return false };
        let (flags, old_length) = (view.flags(), view.header_len());
        let barred = [tcp::Flags::SYN, tcp::Flags::RST].into_iter().any(|flag| flags.has(flag));
        if barred || !flags.has(tcp::Flags::ACK) || !view.payload().is_empty() {
            return false;
        }
        let Some(options) = tcp::states::append(view.options(), &state) else { return false };
        let added = tcp::HEADER as usize + options.len() - old_length;
        if self.size as usize + added > EVERY_LINE_TAKES {
            return false;
        }
        let end = self.ip as usize + self.size as usize;
        let old = &self.bytes.0[end - old_length..end];
        let mut header = joined([&old[..tcp::HEADER as usize], &options]);
        header[12] = header[12] & 0x0F | ((header.len() / 4) as u8) << 4;
        // The length counts in the pseudo-header. The old checksum stands in both sums, and so in neither.
        let covered = |header: &[u8]| Sum::default().word(header.len() as u32).bytes(header).fold();
        let sum = checksum::update(view.checksum(), covered(old), covered(&header));
        header[16..18].copy_from_slice(&sum.to_be_bytes());
        // Ethernet's padding goes with the old end: it was to make the frame long enough.
        self.bytes.0.truncate(end - old_length);
        self.bytes.0.extend_from_slice(&header);
        self.size += added as u32;

        let packet = &mut self.bytes.0[self.ip as usize..];
        let v6 = packet[0] >> 4 == 6;
        let at = if v6 { 4 } else { 2 };
        let length = u16::from_be_bytes([packet[at], packet[at + 1]]);
        let new = length + added as u16;
        packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
        if !v6 {
            let sum = checksum::update(u16::from_be_bytes([packet[10], packet[11]]), length, new);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    }
}

#[cfg(test)]
mod tests;
