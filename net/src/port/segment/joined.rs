//! TCP segments that follow one another go to the kernel as one super-packet: the inverse of cutting, as cards do it (GRO). One
//! passage through the kernel's stack for 45 segments is what carries several Gbit/s.
//!
//! Joined is only what cutting would make of the result, byte for byte; whose checksum this process has made, so that no broken
//! packet is passed on as a good one; and what comes out of the emulated network within [`APART`]. At lower rates each packet
//! goes by itself, and a receiver acknowledges what it would have acknowledged on a cable.

use super::{Headers, Link, Offload, Super, put, word};
use crate::frame::{Frame, Kind};
use narrows_core::Time;
use narrows_core::packet::Packet;
use narrows_core::wire::ipv6::HEADER as IPV6;
use narrows_core::wire::protocol;
use std::io::IoSlice;
use std::iter;
use std::time::Duration;

/// Segments of a run are due at most this far apart: those of 1500 bytes at 3 Gbit/s and more.
const APART: Duration = Duration::from_micros(4);
/// The length field of an IP packet ends here.
const LONGEST: usize = u16::MAX as usize;
/// One system call takes 1024 parts.
const MOST: usize = 1000;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// A packet and when it is due.
pub type Due = (Time, Frame);

/// A packet, or several as one, on its way to the kernel.
#[derive(Clone, Debug)]
pub struct Message {
    /// How many packets.
    pub packets: usize,
    told: [u8; Offload::SIZE],
    /// The headers of several packets as one, which are left out of each.
    headers: Vec<u8>,
}

/// With a packet that goes by itself nothing is left to do.
const ALONE: Message = Message { packets: 1, told: [0; Offload::SIZE], headers: Vec::new() };

impl Message {
    /// What the kernel is given: its description, and the bytes of the message's packets, which `frames` begin with.
    pub fn parts<'a>(&'a self, frames: &'a [Due]) -> impl Iterator<Item = IoSlice<'a>> {
        let headers = &self.headers[..];
        iter::once(&self.told[..])
            .chain((!headers.is_empty()).then_some(headers))
            .chain(frames[..self.packets].iter().map(|(_, f)| &f.bytes()[headers.len()..]))
            .map(IoSlice::new)
    }
}

/// What `frames` go as, in order.
pub fn messages(link: Link, mut frames: &[Due], out: &mut Vec<Message>) {
    out.clear();
    while !frames.is_empty() {
        let (these, rest) = frames.split_at(run(link, frames));
        out.push(if these.len() > 1 { join(link, these) } else { ALONE });
        frames = rest;
    }
}

/// How many of `frames`, from the first one on, can go as one.
fn run(link: Link, frames: &[Due]) -> usize {
    let frames = &frames[..frames.len().min(MOST)];
    let [(_, first), (_, second), ..] = frames else { return frames.len() };
    if first.flow() != second.flow() || !joinable(first) {
        return 1;
    }
    let Ok(headers) = Headers::find(link, first.bytes(), Super::Tcp) else { return 1 };
    let size = headers.end - headers.payload;
    let plain = first.bytes().len() == headers.end && flags(&headers, first) & !CWR & !ECE == ACK;
    if size == 0 || !plain || first.is_tagged() {
        return 1;
    }
    let mut length = headers.end - headers.ip;
    for (index, pair) in frames.windows(2).enumerate() {
        let [(before, _), (at, next)] = pair else { break };
        let payload = next.bytes().len().saturating_sub(headers.payload);
        let fits = length + payload <= LONGEST && (1..=size).contains(&payload);
        if !fits || at.since(*before) > APART || !joinable(next) || !follows(&headers, first, next, index + 1)
        {
            return index + 1;
        }
        length += payload;
        if payload < size || flags(&headers, next) & (FIN | PSH) != 0 {
            return index + 2; // it can only be the last
        }
    }
    frames.len()
}

fn joinable(frame: &Frame) -> bool {
    frame.kind() == Kind::Plain && frame.is_summed()
}

fn flags(headers: &Headers, frame: &Frame) -> u8 {
    frame.bytes()[headers.transport + 13]
}

/// Whether `next` is what cutting makes of a super-packet with the headers of `first` as its `index`th piece.
fn follows(headers: &Headers, first: &Frame, next: &Frame, index: usize) -> bool {
    let (a, b) = (&first.bytes()[..headers.payload], &next.bytes()[..headers.payload]);
    let same = |from: usize, to: usize| a[from..to] == b[from..to];
    let (i, t) = (headers.ip, headers.transport);
    let payload = next.bytes().len() - headers.payload;
    let ip = if headers.v6 {
        same(i, i + 4) && same(i + 6, t) && word(b, i + 4) as usize == headers.payload - i - IPV6 + payload
    } else {
        let next_id = word(a, i + 4).wrapping_add(index as u16);
        let length = headers.payload - i + payload;
        same(i, i + 2)
            && same(i + 6, i + 10)
            && same(i + 12, t)
            && (word(b, i + 2) as usize, word(b, i + 4)) == (length, next_id)
    };
    let seq = |h: &[u8]| u32::from_be_bytes([h[t + 4], h[t + 5], h[t + 6], h[t + 7]]);
    let offset = index * (headers.end - headers.payload);
    ip && same(0, i)
        && same(t, t + 4)
        && seq(b) == seq(a).wrapping_add(offset as u32)
        && same(t + 8, t + 13)
        && b[t + 13] & !(FIN | PSH) == a[t + 13] & !CWR
        && same(t + 14, t + 16)
        && same(t + 18, headers.payload)
}

/// A run as one super-packet, with the headers of its first frame.
fn join(link: Link, run: &[Due]) -> Message {
    let packets = run.len();
    let (first, rest) = run.split_first().expect("a run has frames");
    let headers = Headers::find(link, first.1.bytes(), Super::Tcp).expect("a run begins with a segment");
    let end = headers.end + rest.iter().map(|(_, f)| f.bytes().len() - headers.payload).sum::<usize>();
    let last = rest.last().map_or(0, |(_, f)| flags(&headers, f));
    let size = headers.end - headers.payload;
    let mut bytes = first.1.bytes()[..headers.payload].to_vec();
    let ip = &mut bytes[headers.ip..];
    if headers.v6 {
        put(ip, 4, (end - headers.ip - IPV6) as u16);
    } else {
        put(ip, 2, (end - headers.ip) as u16);
        super::sum_ipv4_header(ip);
    }
    bytes[headers.transport + 13] |= last & (FIN | PSH);
    let covered = (end - headers.transport) as u32;
    let unfinished = headers.pseudo.over(protocol::TCP, &[]).word(covered).fold();
    put(&mut bytes, headers.transport + 16, unfinished);
    let cwr = bytes[headers.transport + 13] & CWR != 0;
    let told =
        Offload { unfinished: Some((headers.transport as u16, 16)), pieces: Some((Super::Tcp, size as u16)) };
    Message { packets, told: told.write(headers.v6, cwr, headers.payload as u16), headers: bytes }
}

#[cfg(test)]
mod tests {
    use super::super::restore;
    use super::*;
    use narrows_core::wire::{ipv4, ipv6, tcp};
    use proptest::prelude::*;

    /// A segment as another of our makers of packets makes it.
    fn segment(link: Link, v6: bool, id: u16, seq: u32, flags: u8, payload: &[u8]) -> Frame {
        use narrows_core::wire::checksum::Pseudo;
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (a6, b6) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let segment = tcp::Segment {
            source: 1,
            destination: 2,
            seq: tcp::Seq(seq),
            ack: tcp::Seq(77),
            flags: tcp::Flags(flags),
            window: 500,
            urgent: 0,
            ecn: narrows_core::Ecn::NotEct,
            options: tcp::Options {
                timestamps: Some(tcp::Timestamps { value: 3, echo: 4 }),
                ..tcp::Options::default()
            },
            payload,
        };
        let mut bytes = match (link, v6) {
            (Link::Ip, _) => Vec::new(),
            (_, false) => [&[2; 12][..], &[8, 0]].concat(),
            (_, true) => [&[2; 12][..], &[0x86, 0xDD]].concat(),
        };
        let mut upper = Vec::new();
        if v6 {
            segment.encode(Pseudo::v6(a6, b6), &mut upper);
            let header = ipv6::Header {
                source: a6,
                destination: b6,
                next_header: 6,
                payload: upper.len() as u16,
                hop_limit: 64,
                dscp: 0,
                ecn: narrows_core::Ecn::Ect0,
                flow_label: 9,
            };
            header.encode(&mut bytes);
        } else {
            segment.encode(Pseudo::v4(a, b), &mut upper);
            let mut header = ipv4::Header::new(a, b, 6, upper.len() as u16);
            header.identification = id;
            header.encode(&mut bytes).unwrap();
        }
        bytes.extend(upper);
        frame(link, bytes).known_intact()
    }

    fn frame(link: Link, bytes: Vec<u8>) -> Frame {
        match link {
            Link::Ip => Frame::ip(bytes).unwrap(),
            Link::Ethernet => Frame::ethernet(bytes).unwrap(),
        }
    }

    /// What the kernel is given, message by message: how many packets each is, what is told of it, and its bytes.
    fn given(link: Link, frames: &[Due]) -> Vec<(usize, Offload, Vec<u8>)> {
        let mut all = Vec::new();
        messages(link, frames, &mut all);
        let mut rest = frames;
        let mut given = Vec::new();
        for message in all {
            let mut parts = message.parts(rest);
            let told = Offload::read(parts.next().unwrap().first_chunk().unwrap());
            given.push((message.packets, told, parts.flat_map(|p| p.to_vec()).collect()));
            rest = &rest[message.packets..];
        }
        given
    }

    fn sizes(link: Link, frames: Vec<Due>) -> Vec<usize> {
        given(link, &frames).into_iter().map(|(packets, ..)| packets).collect()
    }

    proptest! {
        /// Whatever comes, in whatever order: cut again, all messages are what was there before.
        #[test]
        fn cutting_undoes_joining(
            v6: bool,
            tun: bool,
            seq: u32,
            id: u16,
            pieces in prop::collection::vec(
                (0usize..4, prop::sample::select(vec![0x10u8, 0x10, 0x10, 0x10, 0x18, 0x90, 0x11, 0x12, 0x50]), 0u64..6000, 0u8..20),
                1..90,
            ),
        ) {
            let link = if tun { Link::Ip } else { Link::Ethernet };
            let (mut frames, mut at, mut seq, mut id) = (Vec::new(), Time::ZERO, seq, id);
            for (size, flags, gap, odd) in pieces {
                let payload = vec![size as u8; [1448, 1448, 700, 0][size]];
                at += Duration::from_nanos(gap);
                let made = segment(link, v6, id, seq, flags, &payload);
                let made = match odd {
                    0 => frame(link, made.bytes().to_vec()), // not known to be intact
                    1 if !tun => frame(link, [made.bytes(), &[0; 3]].concat()).known_intact(), // padded
                    _ => made,
                };
                frames.push((at, made));
                seq = seq.wrapping_add(payload.len() as u32 + (odd == 2) as u32);
                id = id.wrapping_add(1 + (odd == 3) as u16);
            }
            let before: Vec<Vec<u8>> = frames.iter().map(|(_, f)| f.bytes().to_vec()).collect();
            let (mut again, mut packets) = (Vec::new(), 0);
            for (n, told, bytes) in given(link, &frames) {
                prop_assert_eq!(told.pieces.is_some(), n > 1);
                packets += n;
                restore(link, &bytes, told, None, &mut |f| again.push(f)).unwrap();
            }
            prop_assert_eq!(packets, before.len());
            prop_assert!(again == before);
        }
    }

    #[test]
    fn a_window_goes_as_one_and_its_end_with_it() {
        for (link, v6) in
            [(Link::Ip, false), (Link::Ip, true), (Link::Ethernet, false), (Link::Ethernet, true)]
        {
            let frames: Vec<Due> = (0..10u16)
                .map(|i| {
                    let (last, n) = (i == 9, i as u32 * 1000);
                    let payload = vec![i as u8; if last { 1 } else { 1000 }];
                    (Time::ZERO, segment(link, v6, i, n, if last { 0x19 } else { 0x10 }, &payload))
                })
                .collect();
            let given = given(link, &frames);
            let [(10, told, whole)] = &given[..] else { panic!("{} messages", given.len()) };
            assert_eq!(told.pieces, Some((Super::Tcp, 1000)));
            let headers = if v6 { 40 } else { 20 } + 32 + if link == Link::Ip { 0 } else { 14 };
            assert_eq!(whole.len(), headers + 9001);
        }
    }

    #[test]
    fn what_was_marked_or_comes_later_or_is_not_known_to_be_intact_goes_by_itself() {
        let frames = |change: &dyn Fn(usize, Due) -> Due| {
            let made = |i: usize| (Time::ZERO, segment(Link::Ip, true, 0, i as u32 * 1000, 0x10, &[0; 1000]));
            sizes(Link::Ip, (0..5).map(|i| change(i, made(i))).collect())
        };
        assert_eq!(frames(&|_, due| due), [5]);
        let marked = frames(&|i, (at, mut f)| {
            assert!(i != 2 || f.mark_ce());
            (at, f)
        });
        assert_eq!(marked, [2, 1, 2]);
        let later = frames(&|i, (at, f)| (at + Duration::from_micros(if i < 3 { 0 } else { 5 }), f));
        assert_eq!(later, [3, 2]);
        let strange =
            frames(&|i, (at, f)| (at, if i == 0 { Frame::ip(f.bytes().to_vec()).unwrap() } else { f }));
        assert_eq!(strange, [1, 4]);
    }
}
