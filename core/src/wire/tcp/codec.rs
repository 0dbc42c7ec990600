//! Segments to and from bytes. The reserved bits are ignored when read and zero when written.

use alloc::vec::Vec;

use super::{HEADER, Payload, Segment, View, options};
use crate::packet::Ecn;
use crate::wire::checksum::Pseudo;
use crate::wire::{DecodeError, protocol};

impl<'a> Segment<&'a [u8]> {
    /// The segment that `bytes` are; its checksum is tested if the addresses around it are given.
    ///
    /// # Errors
    /// As [`View::new`]; `Checksum` if the checksum does not fit; `Malformed` if an option has a length that cannot be.
    pub fn decode(bytes: &'a [u8], pseudo: Option<Pseudo>) -> Result<Self, DecodeError> {
        let view = View::new(bytes)?;
        if pseudo.is_some_and(|pseudo| !view.is_intact(pseudo)) {
            return Err(DecodeError::Checksum);
        }
        let flags = view.flags();
        Ok(Segment {
            source: view.source(),
            destination: view.destination(),
            seq: view.seq(),
            ack: view.ack(),
            flags,
            window: view.window(),
            urgent: view.urgent(),
            ecn: Ecn::NotEct,
            options: options::decode(view.options(), flags.has(super::Flags::SYN))?,
            payload: view.payload(),
        })
    }
}

impl<P: Payload> Segment<P> {
    /// The same header around another payload: bytes borrowed from a packet become owned, or a length.
    pub fn with_payload<Q: Payload>(&self, payload: Q) -> Segment<Q> {
        let &Segment { source, destination, seq, ack, flags, window, urgent, ecn, .. } = self;
        let options = self.options.clone();
        Segment { source, destination, seq, ack, flags, window, urgent, ecn, options, payload }
    }

    /// Appends the segment to `out`, `self.size()` bytes with the checksum filled in.
    pub fn encode(&self, pseudo: Pseudo, out: &mut Vec<u8>) {
        let start = out.len();
        let words = (HEADER + self.options.size()) / 4; // at most 15
        out.extend(self.source.to_be_bytes());
        out.extend(self.destination.to_be_bytes());
        out.extend(self.seq.0.to_be_bytes());
        out.extend(self.ack.0.to_be_bytes());
        out.extend([(words as u8) << 4, self.flags.0]);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        options::encode(&self.options, out);
        self.payload.write(out);
        let checksum = pseudo.over(protocol::TCP, &out[start..]).checksum();
        out[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tcp::{Flags, Length, Options, RouterState, SackBlocks, Seq, Timestamps};
    use alloc::vec;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn pseudo() -> Pseudo {
        Pseudo::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }

    #[test]
    fn a_segment_worked_out_by_hand() {
        let segment = Segment {
            source: 0x1234,
            destination: 80,
            seq: Seq(1),
            ack: Seq(2),
            flags: Flags::ACK | Flags::PSH,
            window: 0x2000,
            payload: b"abc".to_vec(),
            ..Segment::default()
        };
        let mut bytes = vec![];
        segment.encode(pseudo(), &mut bytes);
        // Pseudo-header 0A00+0001+0A00+0002+0006+0017 = 1420; ports make 26A4, seq and ack 26A7, offset and flags 5018 make
        // 76BF, window 96BF, payload 6162+6300 makes 1_5B21, folded 5B22.
        let header = [0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0x20, 0, 0xA4, 0xDD, 0, 0];
        assert_eq!(bytes, [&header[..], b"abc"].concat());
        let read = Segment::decode(&bytes, Some(pseudo())).unwrap();
        assert_eq!((read.seq, read.flags, read.payload), (segment.seq, segment.flags, &b"abc"[..]));
    }

    #[test]
    fn what_cannot_be_a_segment_is_refused_for_its_own_reason() {
        let mut bytes = vec![];
        Segment::<Length>::default().encode(pseudo(), &mut bytes);
        let refusal = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Segment::decode(&bytes, Some(pseudo())).unwrap_err()
        };
        assert_eq!(refusal(12, 0x40), DecodeError::Malformed("data offset"));
        assert_eq!(refusal(12, 0x60), DecodeError::Truncated);
        assert_eq!(refusal(0, 1), DecodeError::Checksum);
    }

    prop_compose! {
        fn any_options(syn: bool)(
            mss: Option<u16>, shift in prop::option::of(0u8..=14), sack_permitted: bool, timestamps: Option<(u32, u32)>,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=4),
            routers in prop::option::of(prop::collection::vec(any::<[u16; 5]>(), 0..=4)),
        ) -> Options {
            let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            let states = routers.as_ref().map(|_| Default::default());
            if syn {
                let sack = SackBlocks::default();
                return Options { mss, window_scale: shift, sack_permitted, timestamps, sack, states };
            }
            let mut sack = SackBlocks::default();
            // An option of states takes the room of a block.
            let room = SackBlocks::room(timestamps.is_some()) - states.is_some() as usize;
            for (start, end) in blocks.into_iter().take(room) {
                sack.push(Seq(start), Seq(end));
            }
            let mut options = Options { timestamps, sack, states, ..Options::default() };
            for [router, queue, average, load, time] in routers.into_iter().flatten() {
                options.add_state(RouterState { router, queue, average, load, time });
            }
            options
        }
    }

    prop_compose! {
        fn any_segment()(flags in any::<u8>().prop_map(Flags))(
            options in any_options(flags.has(Flags::SYN)), flags in Just(flags),
            ports in any::<(u16, u16)>(), numbers in any::<(u32, u32)>(), window in any::<u16>(), urgent in any::<u16>(),
            payload in any::<Vec<u8>>(),
        ) -> Segment<Vec<u8>> {
            Segment {
                source: ports.0, destination: ports.1, seq: Seq(numbers.0), ack: Seq(numbers.1), flags, window, urgent,
                ecn: Ecn::NotEct, options, payload,
            }
        }
    }

    proptest! {
        #[test]
        fn a_segment_survives_the_wire(segment in any_segment(), v6: bool) {
            let pseudo = if v6 { Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED) } else { pseudo() };
            let mut bytes = vec![];
            segment.encode(pseudo, &mut bytes);
            prop_assert_eq!(bytes.len(), segment.size() as usize);
            let read = Segment::decode(&bytes, Some(pseudo)).unwrap();
            prop_assert_eq!(read, segment.with_payload(&segment.payload[..]));
        }

        #[test]
        fn a_segment_cut_short_is_an_error_at_every_length(segment in any_segment()) {
            let mut bytes = vec![];
            segment.encode(pseudo(), &mut bytes);
            let header = bytes.len() - segment.payload.len();
            for len in 0..header {
                prop_assert_eq!(Segment::decode(&bytes[..len], None), Err(DecodeError::Truncated));
            }
        }

        #[test]
        fn one_flipped_bit_does_not_pass_the_checksum(segment in any_segment(), at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = vec![];
            segment.encode(pseudo(), &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Segment::decode(&bytes, Some(pseudo())).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Segment::decode(&bytes, None);
        }
    }
}
