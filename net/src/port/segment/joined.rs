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
use narrows_core::wire::protocol;
use std::time::Duration;

/// Segments of a run are due at most this far apart: those of 1500 bytes at 3 Gbit/s and more.
const APART: Duration = Duration::from_micros(4);
/// The length field of an IP packet ends here.
const LONGEST: usize = u16::MAX as usize;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// A packet and when it is due.
pub type Due = (Time, Frame);

/// How many of `frames`, from the first one on, can go as one super-packet of a TUN device: 1 if the first cannot be joined.
pub fn run(frames: &[Due]) -> usize {
    let [(_, first), (_, second), ..] = frames else { return frames.len() };
    if first.flow() != second.flow() || !joinable(first) {
        return 1;
    }
    let Ok(headers) = Headers::find(Link::Ip, first.bytes(), Super::Tcp) else { return 1 };
    let size = headers.end - headers.payload;
    if size == 0 || flags(&headers, first) & !CWR & !ECE != ACK {
        return 1;
    }
    let mut length = headers.end;
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
    frame.kind() == Kind::Plain && frame.is_summed() && frame.bytes().len() == frame.size().0 as usize
}

fn flags(headers: &Headers, frame: &Frame) -> u8 {
    frame.bytes()[headers.transport + 13]
}

/// Whether `next` is what cutting makes of a super-packet with the headers of `first` as its `index`th piece.
fn follows(headers: &Headers, first: &Frame, next: &Frame, index: usize) -> bool {
    let (a, b) = (&first.bytes()[..headers.payload], &next.bytes()[..headers.payload]);
    let same = |from: usize, to: usize| a[from..to] == b[from..to];
    let ip = if headers.v6 {
        same(0, 4) && same(6, headers.transport)
    } else {
        same(0, 2)
            && same(6, 10)
            && same(12, headers.transport)
            && word(b, 4) == word(a, 4).wrapping_add(index as u16)
    };
    let t = headers.transport;
    let seq = |h: &[u8]| u32::from_be_bytes([h[t + 4], h[t + 5], h[t + 6], h[t + 7]]);
    let offset = index * (headers.end - headers.payload);
    ip && same(t, t + 4)
        && seq(b) == seq(a).wrapping_add(offset as u32)
        && same(t + 8, t + 13)
        && b[t + 13] & !(FIN | PSH) == a[t + 13] & !CWR
        && same(t + 14, t + 16)
        && same(t + 18, headers.payload)
}

/// Makes the first frame of a run the head of a super-packet. What the kernel is told of it in front; and how many bytes of each
/// further frame are headers, which are left out.
pub fn head(run: &mut [Due]) -> ([u8; Offload::SIZE], usize) {
    let (first, rest) = run.split_first_mut().expect("a run has frames");
    let headers = Headers::find(Link::Ip, first.1.bytes(), Super::Tcp).expect("a run begins with a segment");
    let length = headers.end + rest.iter().map(|(_, f)| f.bytes().len() - headers.payload).sum::<usize>();
    let last = rest.last().map_or(0, |(_, f)| flags(&headers, f));
    let size = headers.end - headers.payload;
    let bytes = first.1.bytes_mut();
    if headers.v6 {
        put(bytes, 4, (length - narrows_core::wire::ipv6::HEADER) as u16);
    } else {
        put(bytes, 2, length as u16);
        super::sum_ipv4_header(bytes);
    }
    bytes[headers.transport + 13] |= last & (FIN | PSH);
    let covered = (length - headers.transport) as u32;
    let unfinished = headers.pseudo.over(protocol::TCP, &[]).word(covered).fold();
    put(bytes, headers.transport + 16, unfinished);
    let ecn = bytes[headers.transport + 13] & CWR != 0;
    let told =
        Offload { unfinished: Some((headers.transport as u16, 16)), pieces: Some((Super::Tcp, size as u16)) };
    (told.write(headers.v6, ecn, headers.payload as u16), headers.payload)
}

#[cfg(test)]
mod tests {
    use super::super::restore;
    use super::*;
    use narrows_core::wire::{ipv4, ipv6, tcp};
    use proptest::prelude::*;

    /// A segment as another of our makers of packets makes it.
    fn segment(v6: bool, id: u16, seq: u32, flags: u8, payload: &[u8]) -> Frame {
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
            options: tcp::Options {
                timestamps: Some(tcp::Timestamps { value: 3, echo: 4 }),
                ..tcp::Options::default()
            },
            payload,
        };
        let (mut upper, mut bytes) = (Vec::new(), Vec::new());
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
        Frame::ip(bytes).unwrap().known_intact()
    }

    fn bytes(frames: &[Due]) -> Vec<Vec<u8>> {
        frames.iter().map(|(_, f)| f.bytes().to_vec()).collect()
    }

    /// What the kernel is given for a run.
    fn whole(run: &mut [Due]) -> (Offload, Vec<u8>) {
        let (told, headers) = head(run);
        let mut all = run[0].1.bytes().to_vec();
        run[1..].iter().for_each(|(_, f)| all.extend(&f.bytes()[headers..]));
        (Offload::read(&told), all)
    }

    proptest! {
        /// Whatever comes, in whatever order: cut again, all runs are what was there before.
        #[test]
        fn cutting_undoes_joining(
            v6: bool,
            seq: u32,
            id: u16,
            pieces in prop::collection::vec(
                (0usize..4, prop::sample::select(vec![0x10u8, 0x10, 0x10, 0x10, 0x18, 0x90, 0x11, 0x12, 0x50]), 0u64..6000, 0u8..20),
                1..90,
            ),
        ) {
            let (mut frames, mut at, mut seq, mut id) = (Vec::new(), Time::ZERO, seq, id);
            for (size, flags, gap, odd) in pieces {
                let payload = vec![size as u8; [1448, 1448, 700, 0][size]];
                at += Duration::from_nanos(gap);
                let frame = segment(v6, id, seq, flags, &payload);
                let frame = if odd == 0 { Frame::ip(frame.bytes().to_vec()).unwrap() } else { frame };
                frames.push((at, frame));
                seq = seq.wrapping_add(payload.len() as u32 + (odd == 1) as u32);
                id = id.wrapping_add(1 + (odd == 2) as u16);
            }
            let mut rest = &mut frames[..];
            while !rest.is_empty() {
                let n = run(rest);
                prop_assert!(n >= 1 && n <= rest.len());
                let (this, others) = std::mem::take(&mut rest).split_at_mut(n);
                rest = others;
                if n > 1 {
                    let before = bytes(this);
                    prop_assert!(this.windows(2).all(|w| w[1].0.since(w[0].0) <= APART));
                    let (offload, all) = whole(this);
                    let mut again = Vec::new();
                    restore(Link::Ip, &all, offload, None, &mut |f| again.push(f)).unwrap();
                    prop_assert_eq!(again, before);
                }
            }
        }
    }

    #[test]
    fn a_window_goes_as_one_and_its_end_with_it() {
        for v6 in [false, true] {
            let mut frames: Vec<Due> = (0..10u16)
                .map(|i| {
                    let (last, n) = (i == 9, i as u32 * 1000);
                    let payload = vec![i as u8; if last { 1 } else { 1000 }];
                    (Time::ZERO, segment(v6, i, n, if last { 0x19 } else { 0x10 }, &payload))
                })
                .collect();
            assert_eq!(run(&frames), 10);
            let (offload, all) = whole(&mut frames);
            assert_eq!(offload.pieces, Some((Super::Tcp, 1000)));
            assert_eq!(all.len(), if v6 { 40 } else { 20 } + 32 + 9001);
        }
    }

    #[test]
    fn what_was_marked_or_comes_later_or_is_not_known_to_be_intact_goes_by_itself() {
        let frames = |change: &dyn Fn(usize, Due) -> Due| {
            let made = |i: usize| (Time::ZERO, segment(true, 0, i as u32 * 1000, 0x10, &[0; 1000]));
            (0..5).map(|i| change(i, made(i))).collect::<Vec<_>>()
        };
        assert_eq!(run(&frames(&|_, due| due)), 5);
        let marked = frames(&|i, (at, mut f)| {
            assert!(i != 2 || f.mark_ce());
            (at, f)
        });
        assert_eq!((run(&marked), run(&marked[2..]), run(&marked[3..])), (2, 1, 2));
        let later = frames(&|i, (at, f)| (at + Duration::from_micros(if i < 3 { 0 } else { 5 }), f));
        assert_eq!(run(&later), 3);
        let strange =
            frames(&|i, (at, f)| (at, if i == 0 { Frame::ip(f.bytes().to_vec()).unwrap() } else { f }));
        assert_eq!(run(&strange), 1);
    }
}
