//! Packets in bytes: what is read of them, and what is written into them.

use super::*;
use narrows_core::wire::ipv4::Header;

fn v4(protocol: u8, payload: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut header = Header::new(from, to, protocol, payload.len() as u16);
    change(&mut header);
    let mut bytes = Vec::new();
    header.encode(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        source: "fd00::1".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
        next_header,
        payload: payload.len() as u16,
        hop_limit: 64,
        dscp: 46,
        ecn: Ecn::Ect1,
        flow_label: 0x5_4321,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend(payload);
    bytes
}

const PORTS: [u8; 8] = [0x30, 0x39, 0, 80, 0, 0, 0, 0];

#[test]
fn marking_changes_the_ecn_field_and_nothing_else_and_keeps_the_checksum_right() {
    let bytes = v4(protocol::TCP, &PORTS, |h| (h.ecn, h.dscp) = (Ecn::Ect0, 12));
    let mut frame = Frame::ip(bytes.clone()).unwrap();
    assert!(frame.mark_ce() && frame.mark_ce());
    let (header, _) = Header::decode(frame.bytes()).expect("the checksum is right");
    assert_eq!((header.ecn, header.dscp, frame.ecn()), (Ecn::Ce, 12, Ecn::Ce));
    assert_eq!(frame.bytes()[12..], bytes[12..]);

    let mut frame = Frame::ip(v6(protocol::TCP, &PORTS)).unwrap();
    assert!(frame.mark_ce());
    let (header, _) = ipv6::Header::decode(frame.bytes()).unwrap();
    assert_eq!((header.ecn, header.dscp, header.flow_label), (Ecn::Ce, 46, 0x5_4321));

    let bytes = v4(protocol::TCP, &PORTS, |_| ());
    let mut frame = Frame::ip(bytes.clone()).unwrap();
    assert!(!frame.mark_ce(), "who does not speak ECN is not marked");
    assert_eq!(frame.bytes(), bytes);
}

/// An ACK from 10.0.0.1 or fd00::1, port 80, as another part of the project writes it.
fn ack(v6: bool, window: u16, behind: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let segment = tcp::Segment {
        source: 80,
        destination: 12_345,
        ack: tcp::Seq(9),
        flags: tcp::Flags::ACK,
        window,
        payload: tcp::Length(11),
        ..tcp::Segment::default()
    };
    behind(packed(v6, &segment))
}

fn pseudo(v6: bool) -> checksum::Pseudo {
    if v6 {
        checksum::Pseudo::v6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
    } else {
        checksum::Pseudo::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    }
}

/// In a packet, behind destination options if that is IPv6.
fn packed(v6: bool, segment: &tcp::Segment) -> Vec<u8> {
    let mut bytes = Vec::new();
    segment.encode(pseudo(v6), &mut bytes);
    if v6 { v6_with(bytes) } else { v4(protocol::TCP, &bytes, |_| ()) }
}

fn v6_with(segment: Vec<u8>) -> Vec<u8> {
    let mut extended = vec![protocol::TCP, 0, 1, 4, 0, 0, 0, 0]; // destination options, 60
    extended.extend(segment);
    v6(60, &extended)
}

#[test]
fn of_a_passing_ack_only_the_window_and_the_checksum_change() {
    for v6 in [false, true] {
        let (before, wanted) = (ack(v6, 50_000, |b| b), ack(v6, 4711, |b| b));
        let mut frame = Frame::ip(before.clone()).unwrap();
        assert_eq!(frame.look().map(|l| (l.window, l.ack.0, l.payload)), Some((50_000, 9, 11)));
        frame.set_window(4711);
        assert_eq!(frame.bytes(), wanted, "as if the sender had written it");
        let ethernet = |packet: &[u8]| {
            let kind: &[u8] = if v6 { &[0x86, 0xDD] } else { &[8, 0] };
            [&[2; 12][..], &[0x81, 0, 0, 9], kind, packet, &[0; 4]].concat() // tagged and padded
        };
        let mut frame = Frame::ethernet(ethernet(&before)).unwrap();
        frame.set_window(4711);
        assert_eq!(frame.bytes(), ethernet(&wanted));
    }
}

/// An ACK without data, with these options.
fn bare(v6: bool, options: &tcp::Options) -> Vec<u8> {
    let flags = tcp::Flags::ACK;
    packed(
        v6,
        &tcp::Segment {
            source: 80,
            ack: tcp::Seq(9),
            flags,
            options: options.clone(),
            ..tcp::Segment::default()
        },
    )
}

/// Options with an invitation, or without.
fn options(invites: bool, timestamps: bool) -> tcp::Options {
    let stamps = tcp::Timestamps { value: 7, echo: 8 };
    tcp::Options {
        timestamps: timestamps.then_some(stamps),
        states: invites.then(Box::default),
        ..tcp::Options::default()
    }
}

#[test]
fn a_state_is_added_as_if_the_receiver_had_written_it() {
    for (v6, timestamps, most) in [(false, true, 2), (false, false, 3), (true, true, 2), (true, false, 3)] {
        let mut wanted = options(true, timestamps);
        let ethernet = |packet: &[u8]| {
            let kind: &[u8] = if v6 { &[0x86, 0xDD] } else { &[8, 0] };
            [&[2; 12][..], &[0x81, 0, 0, 9], kind, packet].concat()
        };
        let mut frame = Frame::ip(bare(v6, &wanted)).unwrap();
        let padded = [ethernet(&bare(v6, &wanted)), vec![0; 4]].concat();
        let mut behind = Frame::ethernet(padded).unwrap();
        for router in 1..=most {
            let state = RouterState { router, queue: 5, average: 0xFFFF, load: 256, time: 0xFFF0 };
            assert!(wanted.add_state(state) && frame.add_state(state) && behind.add_state(state));
            assert_eq!(frame.bytes(), bare(v6, &wanted));
            assert_eq!(behind.bytes(), ethernet(&bare(v6, &wanted)), "the padding is gone");
            assert_eq!(frame.size().0 as usize, frame.bytes().len());
            let tcp_at = if v6 { 48 } else { 20 };
            let read = tcp::Segment::decode(&frame.bytes()[tcp_at..], Some(pseudo(v6))).unwrap();
            assert_eq!(read.options, wanted);
        }
        assert!(!frame.add_state(RouterState::default()), "there is no room for another");
        assert_eq!(frame.bytes(), bare(v6, &wanted), "and nothing changed");
    }
}

#[test]
fn who_did_not_ask_and_what_has_data_is_left_alone() {
    let with = |flags, length, options| {
        packed(
            false,
            &tcp::Segment { flags, options, payload: tcp::Length(length), ..tcp::Segment::default() },
        )
    };
    let (ack, asks) = (tcp::Flags::ACK, options(true, true));
    for (bytes, why) in [
        (with(ack, 0, options(false, true)), "does not invite"),
        (with(ack, 1, asks.clone()), "has data"),
        (with(ack | tcp::Flags::SYN, 0, asks.clone()), "a handshake"),
        (with(ack | tcp::Flags::RST, 0, asks.clone()), "a reset"),
        (with(tcp::Flags(0), 0, asks.clone()), "no ACK"),
        (v4(protocol::UDP, &PORTS, |_| ()), "UDP"),
    ] {
        let mut frame = Frame::ip(bytes.clone()).unwrap();
        assert!(!frame.add_state(RouterState::default()), "{why}");
        assert_eq!((frame.bytes(), frame.size().0 as usize), (&bytes[..], bytes.len()), "{why}");
    }
    let mut frame = Frame::ip(with(ack | tcp::Flags::FIN, 0, asks)).unwrap();
    assert!(frame.add_state(RouterState::default()), "a FIN is an ACK as well");
}

#[test]
fn an_ack_grows_no_longer_than_every_line_takes() {
    let mut segment = Vec::new();
    let flags = tcp::Flags::ACK;
    let ack = tcp::Segment { flags, options: options(true, true), ..tcp::Segment::<tcp::Length>::default() };
    ack.encode(pseudo(true), &mut segment);
    // IPv6 header, destination options of 8 (n + 1) bytes, 36 bytes of TCP; 12 more with a state.
    let with = |n: u8| {
        let mut extended = vec![protocol::TCP, n, 1, 4, 0, 0, 0, 0];
        (0..n).for_each(|_| extended.extend([1, 6, 0, 0, 0, 0, 0, 0]));
        extended.extend(&segment);
        Frame::ip(v6(60, &extended)).unwrap()
    };
    let (mut fits, mut large) = (with(60), with(61));
    assert_eq!((fits.size().0 + 12, large.size().0 + 12), (576, 584));
    assert!(fits.add_state(RouterState::default()) && !large.add_state(RouterState::default()));
}

#[test]
fn a_broken_checksum_stays_broken() {
    let mut bytes = bare(false, &options(true, true));
    bytes[36] ^= 4;
    let mut frame = Frame::ip(bytes).unwrap();
    assert!(frame.add_state(RouterState { queue: 9, ..RouterState::default() }));
    assert!(tcp::Segment::decode(&frame.bytes()[20..], Some(pseudo(false))).is_err());
}

#[test]
fn a_connection_is_the_same_in_both_directions_and_fragments_are_not_looked_into() {
    let look = |bytes: Vec<u8>| Frame::ip(bytes).unwrap().look();
    let turned = |mut b: Vec<u8>| {
        b[12..20].rotate_left(4);
        b[20..24].rotate_left(2);
        b
    };
    let [there, back] = [ack(false, 1, |b| b), ack(false, 1, turned)].map(|b| look(b).unwrap().connection);
    assert_eq!(there, back);
    assert_ne!(Some(there), look(ack(true, 1, |b| b)).map(|l| l.connection));
    let fragment = v4(protocol::TCP, &[0; 40], |h| h.more_fragments = true);
    assert_eq!((look(fragment), look(v4(protocol::UDP, &PORTS, |_| ()))), (None, None));
    // A data offset beyond the packet, and a SYN whose option reaches beyond the header.
    let mut beyond = ack(false, 1, |b| b);
    beyond[32] = 0xF0;
    assert_eq!(look(beyond), None);
    let mut syn = ack(false, 1, |b| b);
    (syn[32], syn[33], syn[40], syn[41]) = (0x60, 2, 3, 9);
    assert_eq!(look(syn), None);
}

#[test]
fn a_flow_is_a_5_tuple_and_fragments_stay_together() {
    let flow = |bytes| Frame::ip(bytes).unwrap().flow();
    let other_port = [0x30, 0x39, 0, 81, 0, 0, 0, 0];
    assert_eq!(flow(v4(6, &PORTS, |_| ())), flow(v4(6, &PORTS, |h| h.ecn = Ecn::Ect0)));
    assert_ne!(flow(v4(6, &PORTS, |_| ())), flow(v4(6, &other_port, |_| ())));
    assert_ne!(flow(v4(6, &PORTS, |_| ())), flow(v4(17, &PORTS, |_| ())));
    let first = v4(17, &PORTS, |h| h.more_fragments = true);
    let last = v4(17, &[9; 8], |h| h.fragment_offset = 185);
    assert_eq!(flow(first.clone()), flow(last));
    assert_eq!(Frame::ip(first).unwrap().kind(), Kind::Fragment);
}

#[test]
fn ports_are_found_behind_ipv6_extension_headers() {
    let plain = Frame::ip(v6(protocol::UDP, &PORTS)).unwrap();
    let mut options = vec![protocol::UDP, 0, 1, 4, 0, 0, 0, 0]; // destination options, 60
    options.extend(PORTS);
    let extended = Frame::ip(v6(60, &options)).unwrap();
    assert_eq!((plain.kind(), extended.kind()), (Kind::Plain, Kind::Extended));
    assert_eq!(plain.tuple(), extended.tuple());
    assert_eq!(plain.tuple().unwrap().ports, (12_345, 80));
    assert_eq!(plain.flow(), extended.flow());
}

#[test]
fn behind_vlan_tags_a_packet_is_the_same_packet() {
    let packet = v4(6, &PORTS, |_| ());
    let mut ethernet = vec![2; 12];
    ethernet.extend([0x88, 0xA8, 0, 7, 0x81, 0, 0, 9, 8, 0]);
    ethernet.extend(&packet);
    ethernet.extend([0; 18]); // padding
    let frame = Frame::ethernet(ethernet.clone()).unwrap();
    assert_eq!((frame.packet().unwrap(), frame.bytes()), (&packet[..], &ethernet[..]));
    assert_eq!((frame.size().0, frame.flow()), (28, Frame::ip(packet).unwrap().flow()));
}

#[test]
fn what_is_not_ip_passes_and_what_is_broken_is_named() {
    let arp = [&[255; 12][..], &[8, 6], &[0; 28]].concat();
    let frame = Frame::ethernet(arp).unwrap();
    assert_eq!((frame.kind(), frame.size().0, frame.packet(), frame.tuple()), (Kind::NotIp, 28, None, None));
    let good = v4(6, &PORTS, |_| ());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Frame::ip(bytes).unwrap_err()
    };
    assert_eq!(with(8, 1), Malformed::Checksum);
    assert_eq!(with(0, 0x25), Malformed::Field);
    assert_eq!(with(0, 0x44), Malformed::Field);
    assert_eq!(with(2, 0xFF), Malformed::Truncated);
    for short in [&[][..], &[0x45], &good[..19], &[0x60; 39]] {
        assert!(Frame::ip(short.to_vec()).is_err());
    }
    for short in 0..14 {
        assert_eq!(Frame::ethernet(vec![8; short]).unwrap_err(), Malformed::Truncated);
    }
}

#[test]
fn a_header_says_who_sends_to_whom_and_how_it_is_to_be_treated() {
    let header = |bytes| Frame::ip(bytes).unwrap().header().unwrap();
    let h = header(v4(protocol::TCP, &PORTS, |h| (h.ecn, h.dscp) = (Ecn::Ce, 46)));
    let ends = |a: &str, b: &str| (a.parse().unwrap(), b.parse().unwrap());
    assert_eq!((h.source, h.destination), ends("10.0.0.1", "10.0.0.2"));
    assert_eq!((h.protocol, h.ports, h.dscp), (protocol::TCP, Some((12_345, 80)), 46));
    let h = header(v6(protocol::UDP, &PORTS));
    assert_eq!((h.source, h.destination), ends("fd00::1", "fd00::2"));
    assert_eq!((h.protocol, h.ports, h.dscp), (protocol::UDP, Some((12_345, 80)), 46));
    let fragment = header(v4(protocol::UDP, &PORTS, |h| h.more_fragments = true));
    assert_eq!((fragment.protocol, fragment.ports, fragment.dscp), (protocol::UDP, None, 0));
    let mut arp = vec![2; 12];
    arp.extend([8, 6, 0, 1]);
    assert_eq!(Frame::ethernet(arp).unwrap().header(), None);
}
