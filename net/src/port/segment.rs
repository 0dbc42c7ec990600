//! From what the kernel hands a packet socket or a TUN device to what is on the wire: an unfinished checksum is finished, a super-packet is cut
//! into the packets that a card would have made of it, a VLAN tag goes back to its place.
//!
//! Between hosts on one machine, and behind cards that merge what they receive (GRO), the kernel moves TCP in pieces of up to
//! 64 KiB with one header each. A queue that took them for packets would hold and drop 45 of them at once. The kernel describes
//! them by a `virtio_net_hdr` (virtio 1.2, section 5.1.6): where the checksum is missing, and how long the pieces shall be.
//!
//! Cutting follows what Linux documents for its own (`segmentation-offloads.rst`): each piece has the first one's headers, but
//! for lengths and checksums, the IPv4 identification (one more each), the sequence number (as many bytes more), FIN and PSH
//! (only the last), and CWR (only the first: RFC 3168 section 6.1.2 answers one congestion signal with one CWR).

use crate::frame::{self, Malformed};
use narrows_core::wire::checksum::{Pseudo, Sum};
use narrows_core::wire::{ipv4, ipv6, protocol, tcp};

pub mod joined;

/// What stands before the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Nothing: the packets of a TUN device.
    Ip,
    /// An Ethernet header, and tags.
    Ethernet,
}

impl Link {
    /// Where the IP header begins.
    fn ip(self, bytes: &[u8]) -> Result<usize, Malformed> {
        match self {
            Link::Ip => Ok(0),
            Link::Ethernet => behind_tags(bytes),
        }
    }
}

/// What the kernel says of a packet in front of it: a `virtio_net_hdr` in the machine's byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// The checksum is to be finished: where the sum begins, and how far behind that its field is.
    pub unfinished: Option<(u16, u16)>,
    /// The packet is to be cut: what it is, and how many bytes of payload go into one piece.
    pub pieces: Option<(Super, u16)>,
}

/// The kinds of super-packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Super {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// UDP datagrams of one flow.
    Udp,
    /// What we do not know how to cut.
    Unknown,
}

impl Offload {
    /// Bytes of a `virtio_net_hdr`.
    pub const SIZE: usize = 10;

    /// Reads one.
    pub fn read(h: &[u8; Offload::SIZE]) -> Offload {
        let word = |at: usize| u16::from_ne_bytes([h[at], h[at + 1]]);
        let kind = match h[1] & !ECN {
            0 => None,
            1 | 4 => Some(Super::Tcp),
            5 => Some(Super::Udp),
            _ => Some(Super::Unknown),
        };
        Offload {
            unfinished: (h[0] & NEEDS_CHECKSUM != 0).then(|| (word(6), word(8))),
            pieces: kind.map(|k| (k, word(4))),
        }
    }

    /// One for a TCP super-packet whose headers have so many bytes.
    fn write(self, v6: bool, cwr: bool, headers: u16) -> [u8; Offload::SIZE] {
        let mut h = [0; Offload::SIZE];
        let mut set = |at: usize, value: u16| h[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        set(2, headers);
        if let Some((start, offset)) = self.unfinished {
            set(6, start);
            set(8, offset);
        }
        if let Some((_, size)) = self.pieces {
            set(4, size);
        }
        h[0] = if self.unfinished.is_some() { NEEDS_CHECKSUM } else { 0 };
        h[1] = if v6 { 4 } else { 1 } | if cwr { ECN } else { 0 };
        h
    }
}

/// In the first byte of a `virtio_net_hdr`.
const NEEDS_CHECKSUM: u8 = 1;
/// In the second: the super-packet's first piece has CWR.
const ECN: u8 = 0x80;

/// An IEEE 802.1Q tag as it stands in a frame: its type and its number.
pub type Tag = [u8; 4];

/// The two addresses of an Ethernet frame; a tag comes behind them.
const ADDRESSES: usize = 12;

/// The frames that `bytes` is on the wire; a `tag` was in an Ethernet frame.
///
/// # Errors
/// Headers that lie outside the bytes, or a super-packet of a kind that is not known.
pub fn restore(
    link: Link,
    bytes: &[u8],
    offload: Offload,
    tag: Option<Tag>,
    emit: &mut dyn FnMut(Vec<u8>),
) -> Result<(), Malformed> {
    if let Some((kind, size)) = offload.pieces {
        return cut(Headers::find(link, bytes, kind)?, bytes, size as usize, tag, emit);
    }
    let tag_bytes = tag.as_ref().map_or(&[][..], |t| t);
    let (addresses, rest) = match link {
        Link::Ip => (&[][..], bytes),
        Link::Ethernet => bytes.split_at_checked(ADDRESSES).ok_or(Malformed::Truncated)?,
    };
    let mut frame = frame::joined([addresses, tag_bytes, rest]);
    if let Some((start, offset)) = offload.unfinished {
        let start = start as usize + tag.map_or(0, |t| t.len());
        finish(frame.get_mut(start..).ok_or(Malformed::Truncated)?, offset as usize)?;
    }
    emit(frame);
    Ok(())
}

/// The kernel has left the sum of the pseudo-header in the field, so the sum over everything is the whole sum.
fn finish(covered: &mut [u8], at: usize) -> Result<(), Malformed> {
    if at == SCTP_CHECKSUM {
        return Err(Malformed::UnknownChecksum);
    }
    let sum = Sum::default().bytes(covered).checksum();
    let field = covered.get_mut(at..at + 2).ok_or(Malformed::Truncated)?;
    field.copy_from_slice(&never_zero(sum).to_be_bytes());
    Ok(())
}

/// Where an SCTP packet has its CRC32c, and no other protocol that leaves its checksum to a card.
const SCTP_CHECKSUM: usize = 8;

/// In UDP a checksum of zero says that there is none; the other zero of ones' complement is as right, in TCP too.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xFFFF } else { checksum }
}

fn cut(
    headers: Headers,
    bytes: &[u8],
    size: usize,
    tag: Option<Tag>,
    emit: &mut dyn FnMut(Vec<u8>),
) -> Result<(), Malformed> {
    if size < SMALLEST_PIECE {
        return Err(Malformed::Field);
    }
    let (head, payload) = bytes[..headers.end].split_at(headers.payload);
    let mut rest = payload;
    let mut index = 0;
    loop {
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        let mut frame = frame::joined([head, piece]);
        headers.adjust(&mut frame, index, payload.len() - rest.len(), behind.is_empty());
        if let Some(tag) = tag {
            frame.splice(ADDRESSES..ADDRESSES, tag);
        }
        emit(frame);
        if behind.is_empty() {
            return Ok(());
        }
        (rest, index) = (behind, index + 1);
    }
}

/// Where the headers of a super-packet are.
struct Headers {
    /// The IP header.
    ip: usize,
    v6: bool,
    pseudo: Pseudo,
    /// The transport header.
    transport: usize,
    kind: Super,
    payload: usize,
    /// Behind the packet.
    end: usize,
}

impl Headers {
    fn find(link: Link, bytes: &[u8], kind: Super) -> Result<Headers, Malformed> {
        let ip = link.ip(bytes)?;
        let packet = &bytes[ip..];
        let v6 = packet.first().is_some_and(|b| b >> 4 == 6);
        let (protocol, upper, end, pseudo) = if v6 {
            let v = ipv6::View::new(packet)?;
            let upper = v.upper()?;
            let end = ip + ipv6::HEADER + v.payload().len();
            (upper.protocol, upper.payload, end, Pseudo::v6(v.source(), v.destination()))
        } else {
            let v = ipv4::View::new(packet)?;
            let end = ip + v.header_len() + v.payload().len();
            (v.protocol(), v.payload(), end, Pseudo::v4(v.source(), v.destination()))
        };
        let transport = end - upper.len();
        let header = match (kind, protocol) {
            (Super::Tcp, protocol::TCP) => tcp::View::new(upper)?.header_len(),
            (Super::Udp, protocol::UDP) if upper.len() >= UDP => UDP,
            _ => return Err(Malformed::Field),
        };
        Ok(Headers { ip, v6, pseudo, transport, kind, payload: transport + header, end })
    }

    /// Makes the headers in `frame` those of the `index`th piece, whose payload begins `offset` bytes into the whole one.
    fn adjust(&self, frame: &mut [u8], index: u16, offset: usize, last: bool) {
        let length = frame.len() - self.ip;
        let ip = &mut frame[self.ip..];
        if self.v6 {
            put(ip, 4, (length - ipv6::HEADER) as u16);
        } else {
            put(ip, 2, length as u16);
            put(ip, 4, word(ip, 4).wrapping_add(index));
            sum_ipv4_header(ip);
        }
        let segment = &mut frame[self.transport..];
        let (checksum, number) = match self.kind {
            Super::Tcp => {
                const FIN_PSH: u8 = 0x01 | 0x08;
                const CWR: u8 = 0x80;
                let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
                segment[4..8].copy_from_slice(&seq.wrapping_add(offset as u32).to_be_bytes());
                segment[13] &= if last { 0xFF } else { !FIN_PSH } & if index == 0 { 0xFF } else { !CWR };
                (16, protocol::TCP)
            }
            _ => {
                put(segment, 4, segment.len() as u16);
                (6, protocol::UDP)
            }
        };
        put(segment, checksum, 0);
        let sum = self.pseudo.over(number, segment).checksum();
        put(segment, checksum, never_zero(sum));
    }
}

/// Linux sends no smaller segments (`TCP_MIN_MSS`, less 12 bytes of timestamps); less would turn one packet into ten thousands.
const SMALLEST_PIECE: usize = 36;
/// Bytes of a UDP header.
const UDP: usize = 8;

/// Where the IP header is: behind the Ethernet header and the tags that the kernel has left in it.
fn behind_tags(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut at = ADDRESSES;
    while let Some([high, low]) = bytes.get(at..at + 2) {
        match u16::from_be_bytes([*high, *low]) {
            0x8100 | 0x88A8 | 0x9100 => at += 4,
            _ => return Ok(at + 2),
        }
    }
    Err(Malformed::Truncated)
}

/// Makes the checksum of the IPv4 header that `packet` begins with right.
fn sum_ipv4_header(packet: &mut [u8]) {
    put(packet, 10, 0);
    let header = (packet[0] & 0xF) as usize * 4;
    let sum = Sum::default().bytes(&packet[..header]).checksum();
    put(packet, 10, sum);
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
