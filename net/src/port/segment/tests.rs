//! Worked examples: what comes in by hand, what must come out by the rules; checksums by another implementation.

use super::*;
use narrows_core::wire::{tcp, udp};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 2);
const CWR_PSH_ACK_FIN: u8 = 0x99;

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, id: u16, upper: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0x02, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    put(&mut packet, 2, 20 + upper.len() as u16);
    put(&mut packet, 4, id);
    packet.extend(A4.octets());
    packet.extend(B4.octets());
    let sum = Sum::default().bytes(&packet).checksum();
    put(&mut packet, 10, sum);
    packet.extend(upper);
    ethernet(0x0800, &packet)
}

/// With destination options between the header and TCP.
fn ipv6(upper: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0x20, 0, 0, 0, 0, 60, 64];
    put(&mut packet, 4, 8 + upper.len() as u16);
    packet.extend(A6.octets());
    packet.extend(B6.octets());
    packet.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend(upper);
    ethernet(0x86DD, &packet)
}

/// A segment with 12 bytes of options.
fn segment(seq: u32, flags: u8, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0, 80];
    bytes.extend(seq.to_be_bytes());
    bytes.extend(77u32.to_be_bytes());
    bytes.extend([0x80, flags, 0xFF, 0, 0, 0, 0, 0]);
    bytes.extend([1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7]);
    bytes.extend((0..payload).map(|i| (i * 7 % 251) as u8));
    bytes
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0, 53, 0, 0, 0, 0];
    put(&mut bytes, 4, 8 + payload.len() as u16);
    bytes.extend(payload);
    bytes
}

fn pieces(kind: Super, size: u16) -> Offload {
    Offload { unfinished: None, pieces: Some((kind, size)) }
}

#[track_caller]
fn restored(bytes: &[u8], offload: Offload, tag: Option<Tag>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    restore(Link::Ethernet, bytes, offload, tag, &mut |f| frames.push(f)).unwrap();
    frames
}

#[test]
fn a_super_packet_over_ipv4_becomes_the_packets_a_card_makes_of_it() {
    let whole = ipv4(6, 0xFFFF, &segment(0xFFFF_FE00, CWR_PSH_ACK_FIN, 2500));
    let frames = restored(&whole, pieces(Super::Tcp, 1000), None);
    let mut payload: Vec<u8> = Vec::new();
    let mut seen = Vec::new();
    for frame in &frames {
        assert_eq!(frame[..14], whole[..14]);
        let ip = ipv4::View::new(&frame[14..]).unwrap();
        assert!(ip.is_intact());
        let t = tcp::View::new(ip.payload()).unwrap();
        assert!(t.is_intact(Pseudo::v4(A4, B4)));
        assert_eq!(t.options(), &segment(0, 0, 0)[20..]);
        assert_eq!((ip.ttl(), ip.ecn() as u8, t.ack().0, t.window()), (64, 2, 77, 0xFF00));
        seen.push((ip.identification(), frame.len(), t.seq().0, t.flags().0));
        payload.extend(t.payload());
    }
    let expected = [
        (0xFFFF, 14 + 1052, 0xFFFF_FE00, 0x90), // CWR in the first only
        (0, 14 + 1052, 488, 0x10),              // FE00 + 1000, modulo 2^32
        (1, 14 + 552, 1488, 0x19),              // PSH and FIN in the last only
    ];
    assert_eq!(seen, expected);
    assert_eq!(payload, segment(0, 0, 2500)[32..]);
}

#[test]
fn a_super_packet_over_ipv6_keeps_its_extension_headers() {
    let whole = ipv6(&segment(1, CWR_PSH_ACK_FIN, 1400));
    let frames = restored(&whole, pieces(Super::Tcp, 701), None);
    let seen: Vec<_> = frames
        .iter()
        .map(|frame| {
            let ip = ipv6::View::new(&frame[14..]).unwrap();
            let t = tcp::View::new(ip.upper().unwrap().payload).unwrap();
            assert!(t.is_intact(Pseudo::v6(A6, B6)));
            assert_eq!((ip.next_header(), ip.ecn() as u8), (60, 2));
            (ip.payload().len(), frame.len(), t.seq().0, t.flags().0)
        })
        .collect();
    assert_eq!(seen, [(741, 795, 1, 0x90), (739, 793, 702, 0x19)]);
}

#[test]
fn datagrams_sent_in_one_piece_become_datagrams() {
    let whole = ipv4(17, 5, &datagram(&[9; 250]));
    let frames = restored(&whole, pieces(Super::Udp, 100), None);
    let seen: Vec<_> = frames
        .iter()
        .map(|frame| {
            let ip = ipv4::View::new(&frame[14..]).unwrap();
            let u = udp::View::new(ip.payload()).unwrap();
            assert!(ip.is_intact() && u.is_intact(Pseudo::v4(A4, B4)));
            (ip.identification(), u.payload().len(), frame.len())
        })
        .collect();
    assert_eq!(seen, [(5, 100, 142), (6, 100, 142), (7, 50, 92)]);
}

#[test]
fn a_tag_that_the_kernel_took_out_stands_where_it_stood() {
    let tag = [0x81, 0, 0x20, 42];
    let plain = ipv4(17, 5, &datagram(&[9; 150]));
    let tagged = |frame: &[u8]| [&frame[..12], &tag, &frame[12..]].concat();
    assert_eq!(restored(&plain, Offload::default(), Some(tag)), [tagged(&plain)]);
    let without = restored(&plain, pieces(Super::Udp, 100), None);
    let with = restored(&plain, pieces(Super::Udp, 100), Some(tag));
    assert_eq!(with, without.iter().map(|f| tagged(f)).collect::<Vec<_>>());
}

/// The frame as a sender leaves it to its card: the sum of the pseudo-header in the checksum field.
fn unfinished(payload: &[u8]) -> Vec<u8> {
    let mut bytes = datagram(payload);
    let pseudo = Pseudo::v4(A4, B4).over(17, &[]).word(bytes.len() as u32).fold();
    put(&mut bytes, 6, pseudo);
    ipv4(17, 5, &bytes)
}

#[test]
fn an_unfinished_checksum_is_finished_behind_a_tag_too() {
    let offload = Offload { unfinished: Some((34, 6)), pieces: None };
    for (tag, at) in [(None, 34), (Some([0x81, 0, 0, 1]), 38)] {
        let frame = &restored(&unfinished(&[1, 2, 3]), offload, tag)[0];
        let u = udp::View::new(&frame[at..]).unwrap();
        assert!(u.checksum() != 0 && u.is_intact(Pseudo::v4(A4, B4)));
    }
}

#[test]
fn a_udp_checksum_that_comes_to_zero_is_written_as_ffff() {
    let offload = Offload { unfinished: Some((34, 6)), pieces: None };
    let sum_of_zeros = word(&restored(&unfinished(&[0, 0]), offload, None)[0], 40);
    let frame = &restored(&unfinished(&sum_of_zeros.to_be_bytes()), offload, None)[0];
    assert_eq!(word(frame, 40), 0xFFFF);
}

#[test]
fn what_cannot_be_cut_or_finished_is_refused_under_a_name() {
    let tcp = ipv4(6, 1, &segment(1, 0x10, 100));
    let refused = |bytes: &[u8], offload| {
        restore(Link::Ethernet, bytes, offload, None, &mut |_| panic!("let in")).unwrap_err()
    };
    assert_eq!(refused(&tcp, pieces(Super::Tcp, 0)), Malformed::Field);
    assert_eq!(refused(&tcp, pieces(Super::Udp, 50)), Malformed::Field);
    assert_eq!(refused(&tcp, pieces(Super::Unknown, 50)), Malformed::Field);
    assert_eq!(refused(&tcp[..40], pieces(Super::Tcp, 50)), Malformed::Truncated);
    assert_eq!(refused(&tcp[..13], pieces(Super::Tcp, 50)), Malformed::Truncated);
    assert_eq!(refused(&tcp[..7], Offload::default()), Malformed::Truncated);
    for unfinished in [(900, 6), (166, 0), (165, 1)] {
        let offload = Offload { unfinished: Some(unfinished), pieces: None };
        assert_eq!(refused(&tcp, offload), Malformed::Truncated, "{unfinished:?}");
    }
}

#[test]
fn the_header_in_front_of_a_packet_is_read_in_the_machines_byte_order() {
    let mut h = [1, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]; // an unfinished checksum; TCP over IPv4 with ECN
    h[4..6].copy_from_slice(&1448u16.to_ne_bytes());
    h[6..8].copy_from_slice(&34u16.to_ne_bytes());
    h[8..10].copy_from_slice(&16u16.to_ne_bytes());
    let read = Offload { unfinished: Some((34, 16)), pieces: Some((Super::Tcp, 1448)) };
    assert_eq!(Offload::read(&h), read);
    assert_eq!(Offload::read(&[0; 10]), Offload::default());
}

proptest! {
    /// Whatever the kernel or a sender says, no byte of payload is lost or made, and nothing panics.
    #[test]
    fn no_lie_in_a_header_does_harm(
        v6: bool, flips in prop::collection::vec((0usize..90, any::<u8>()), 0..4),
        h: [u8; 10], cut_at in 0usize..600, tag: Option<[u8; 4]>,
    ) {
        let s = segment(5, 0x18, 500);
        let mut bytes = if v6 { ipv6(&s) } else { ipv4(6, 1, &s) };
        for (at, value) in flips {
            bytes[at] = value;
        }
        bytes.truncate(cut_at);
        let mut total = 0;
        let done = restore(Link::Ethernet, &bytes, Offload::read(&h), tag, &mut |f| total += f.len());
        prop_assert!(done.is_err() || total + 4 >= bytes.len().min(14));
    }
}
