//! TCP options to and from bytes: MSS (RFC 9293 section 3.7.1), window scale and timestamps (RFC 7323), SACK (RFC 2018),
//! states of routers (RFC 6994, see [`super::states`]).
//!
//! Written in the order and with the padding of Linux: MSS, SACK permitted (in the place of two NOPs) and timestamps, window
//! scale, states, SACK blocks; every group a multiple of four bytes, or without padding if only so all of them fit.
//!
//! Read as their RFCs ask: MSS, window scale and SACK permitted count in a SYN only, SACK blocks and entries of states outside it
//! only; what stands elsewhere is stepped over, as are options and experiments unknown here. So whatever was read fits into 40
//! bytes when it is written again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::states::EXPERIMENT;
use super::{Options, RouterState, RouterStates, SackBlocks, Seq, Timestamps};
use crate::wire::{DecodeError, u16_at, u32_at};

/// Option kinds (IANA, "TCP Option Kind Numbers").
pub(super) mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
    pub const EXPERIMENT: u8 = 253;
}

/// The largest shift: "If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log the error but
/// MUST use 14 instead of the specified value" (RFC 7323 section 2.3).
const MAX_SHIFT: u8 = 14;

/// Reads the options of a segment, a SYN or not. If one is there twice, the last counts.
///
/// # Errors
/// `Malformed` if an option reaches beyond the header, or has a length its kind does not allow.
pub(super) fn decode(mut bytes: &[u8], syn: bool) -> Result<Options, DecodeError> {
    const LENGTH: DecodeError = DecodeError::Malformed("option length");
    let mut options = Options::default();
    while let [kind, rest @ ..] = bytes {
        match *kind {
            kind::END => break,
            kind::NOP => {
                bytes = rest;
                continue;
            }
            _ => {}
        }
        let len = *rest.first().ok_or(LENGTH)? as usize;
        let body = bytes.get(2..len).ok_or(LENGTH)?;
        bytes = &bytes[len..];
        match (*kind, body.len()) {
            (kind::MSS, 2) => options.mss = Some(u16_at(body, 0)),
            (kind::WINDOW_SCALE, 1) => options.window_scale = Some(body[0].min(MAX_SHIFT)),
            (kind::SACK_PERMITTED, 0) => options.sack_permitted = true,
            (kind::TIMESTAMPS, 8) => {
                options.timestamps = Some(Timestamps { value: u32_at(body, 0), echo: u32_at(body, 4) });
            }
            (kind::SACK, 8 | 16 | 24 | 32) => {
                options.sack = SackBlocks::default();
                for block in body.chunks_exact(8) {
                    options.sack.push(Seq(u32_at(block, 0)), Seq(u32_at(block, 4)));
                }
            }
            (kind::EXPERIMENT, 2..) if u16_at(body, 0) == EXPERIMENT => {
                options.states = Some(Box::new(decode_states(&body[2..]).ok_or(LENGTH)?));
            }
            (kind::MSS | kind::WINDOW_SCALE | kind::SACK_PERMITTED | kind::TIMESTAMPS | kind::SACK, _) => {
                return Err(LENGTH);
            }
            _ => {}
        }
    }
    Ok(match syn {
        true => {
            let states = options.states.map(|_| Box::default());
            Options { sack: SackBlocks::default(), states, ..options }
        }
        false => {
            let Options { timestamps, sack, states, .. } = options;
            Options { timestamps, sack, states, ..Options::default() }
        }
    })
}

fn decode_states(entries: &[u8]) -> Option<RouterStates> {
    let mut states = RouterStates::default();
    let entries = entries.chunks(RouterState::SIZE as usize);
    for entry in entries {
        if entry.len() < RouterState::SIZE as usize {
            return None;
        }
        let [router, queue, average, load, time] = [0, 2, 4, 6, 8].map(|at| u16_at(entry, at));
        states.push(RouterState { router, queue, average, load, time });
    }
    Some(states)
}

/// Appends the options to `out`: exactly `options.size()` bytes.
pub(super) fn encode(options: &Options, out: &mut Vec<u8>) {
    use kind::NOP;
    let end = out.len() + options.size() as usize;
    let tight = options.is_tight();
    let nops = |out: &mut Vec<u8>, n: usize| {
        if !tight {
            out.resize(out.len() + n, NOP);
        }
    };
    if let Some(mss) = options.mss {
        out.extend([kind::MSS, 4]);
        out.extend(mss.to_be_bytes());
    }
    if options.sack_permitted {
        if options.timestamps.is_none() {
            nops(out, 2);
        }
        out.extend([kind::SACK_PERMITTED, 2]);
    }
    if let Some(timestamps) = options.timestamps {
        if !options.sack_permitted {
            nops(out, 2);
        }
        out.extend([kind::TIMESTAMPS, 10]);
        out.extend(timestamps.value.to_be_bytes());
        out.extend(timestamps.echo.to_be_bytes());
    }
    if let Some(shift) = options.window_scale {
        nops(out, 1);
        out.extend([kind::WINDOW_SCALE, 3, shift]);
    }
    if let Some(states) = options.states.as_ref().and_then(|s| s.within((end - out.len()) as u32)) {
        let len = 4 + states.len() * RouterState::SIZE as usize;
        nops(out, len.next_multiple_of(4) - len);
        out.extend([kind::EXPERIMENT, len as u8]);
        out.extend(EXPERIMENT.to_be_bytes());
        states.iter().for_each(|state| state.write(out));
    }
    let head = if tight { 2 } else { 4 };
    let room = end.saturating_sub(out.len() + head) / 8;
    let blocks = &options.sack.as_slice()[..options.sack.as_slice().len().min(room)];
    if !blocks.is_empty() {
        nops(out, 2);
        out.extend([kind::SACK, 2 + 8 * blocks.len() as u8]);
        for (start, end) in blocks {
            out.extend(start.0.to_be_bytes());
            out.extend(end.0.to_be_bytes());
        }
    }
    out.resize(end, NOP); // behind what did not fit, or was not padded
}

#[cfg(test)]
mod tests {
    use super::super::states::append;
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn written(options: &Options) -> Vec<u8> {
        let mut out = vec![];
        encode(options, &mut out);
        assert_eq!(out.len(), options.size() as usize, "{options:?}");
        out
    }

    fn blocks(n: u32) -> SackBlocks {
        let mut sack = SackBlocks::default();
        (0..n).for_each(|i| sack.push(Seq(100 * i), Seq(100 * i + 50)));
        sack
    }

    #[test]
    fn the_syn_of_a_linux_host_byte_for_byte() {
        let options = Options {
            mss: Some(1460),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
            window_scale: Some(7),
            ..Options::default()
        };
        let bytes = [2, 4, 0x05, 0xB4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
        assert_eq!(written(&options), bytes);
        assert_eq!(decode(&bytes, true), Ok(options));
    }

    #[test]
    fn each_option_alone_is_padded_as_linux_does() {
        let none = Options::default;
        let timestamps = Some(Timestamps { value: 1, echo: 2 });
        assert_eq!(written(&none()), []);
        assert_eq!(written(&Options { sack_permitted: true, ..none() }), [1, 1, 4, 2]);
        assert_eq!(written(&Options { window_scale: Some(3), ..none() }), [1, 3, 3, 3]);
        assert_eq!(written(&Options { timestamps, ..none() }), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(written(&Options { sack: blocks(1), ..none() }), [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 50]);
    }

    #[test]
    fn a_shift_above_14_is_taken_for_14() {
        for (sent, used) in [(0, 0), (14, 14), (15, 14), (255, 14)] {
            assert_eq!(decode(&[3, 3, sent], true).unwrap().window_scale, Some(used));
        }
    }

    #[test]
    fn unknown_options_are_stepped_over_and_nothing_counts_behind_the_end() {
        let bytes = [30, 4, 0xAA, 0xBB, 1, 254, 2, 2, 4, 5, 0xB4, 0, 3, 3, 7];
        assert_eq!(decode(&bytes, true), Ok(Options { mss: Some(1460), ..Options::default() }));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let cut: [&[u8]; 5] = [&[2], &[2, 0], &[2, 1], &[2, 4, 5], &[99, 200, 1]];
        let of_another_kind: [&[u8]; 6] =
            [&[2, 3, 5], &[2, 5, 5, 5, 5], &[3, 2], &[4, 3, 0], &[8, 2], &[5, 2]];
        let a_block_and_a_byte: [&[u8]; 1] = [&[5, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
        let an_entry_cut_short: [&[u8]; 2] =
            [&[253, 5, 0x4E, 0x57, 0], &[253, 13, 0x4E, 0x57, 0, 1, 0, 2, 0, 3, 0, 4, 0]];
        let refused =
            cut.into_iter().chain(of_another_kind).chain(a_block_and_a_byte).chain(an_entry_cut_short);
        for (bytes, syn) in refused.flat_map(|bytes| [(bytes, true), (bytes, false)]) {
            assert_eq!(decode(bytes, syn), Err(DecodeError::Malformed("option length")), "{bytes:?}");
        }
    }

    #[test]
    fn options_count_only_where_their_rfcs_allow_them() {
        let of_a_syn = [2, 4, 5, 0xB4, 4, 2, 3, 3, 7];
        assert_eq!(decode(&of_a_syn, false), Ok(Options::default()));
        let mut of_an_ack = vec![];
        encode(&Options { sack: blocks(2), ..Options::default() }, &mut of_an_ack);
        assert_eq!(decode(&of_an_ack, true), Ok(Options::default()));
        assert_eq!(decode(&of_an_ack, false).unwrap().sack, blocks(2));
    }

    #[test]
    fn blocks_that_do_not_fit_are_left_off() {
        let timestamps = Some(Timestamps::default());
        let crowded = Options { timestamps, sack: blocks(4), ..Options::default() };
        assert_eq!(crowded.size(), 40);
        assert_eq!(decode(&written(&crowded), false).unwrap().sack, blocks(SackBlocks::room(true) as u32));
        // 8 bytes of others leave room for three blocks and four bytes over.
        let odd = Options { mss: Some(1), window_scale: Some(1), sack: blocks(4), ..Options::default() };
        assert_eq!(written(&odd)[36..], [1; 4]);
        assert_eq!(decode(&written(&odd), false).unwrap().sack, blocks(3));
    }

    fn states(n: u16) -> Option<Box<RouterStates>> {
        let mut states = RouterStates::default();
        for router in 1..=n {
            assert!(states.push(RouterState {
                router,
                queue: 0x0102,
                average: 0x0304,
                load: 256,
                time: 0xFFFF
            }));
        }
        Some(Box::new(states))
    }

    #[test]
    fn states_of_routers_byte_for_byte() {
        let none = Options::default;
        assert_eq!(written(&Options { states: states(0), ..none() }), [253, 4, 0x4E, 0x57]);
        let one = [1, 1, 253, 14, 0x4E, 0x57, 0, 1, 1, 2, 3, 4, 1, 0, 0xFF, 0xFF];
        assert_eq!(written(&Options { states: states(1), ..none() }), one);
        assert_eq!(decode(&one, false), Ok(Options { states: states(1), ..none() }));
        assert_eq!(decode(&one, true), Ok(Options { states: states(0), ..none() }), "a SYN has no entries");
    }

    #[test]
    fn experiments_of_others_are_stepped_over() {
        for bytes in [&[253, 2][..], &[253, 3, 0x4E], &[253, 5, 0x4E, 0x58, 0], &[254, 4, 0x4E, 0x57]] {
            assert_eq!(decode(bytes, false), Ok(Options::default()), "{bytes:?}");
        }
    }

    #[test]
    fn three_routers_have_room_and_two_beside_timestamps() {
        for (timestamps, sack, room) in [
            (None, 0, 3),
            (Some(Timestamps::default()), 0, 2),
            (Some(Timestamps::default()), 1, 1), // 10 + 14 + 10 bytes; 12 + 16 + 12 with NOPs
            (None, 3, 1),                        // 14 + 26 bytes, not padded
            (Some(Timestamps::default()), 3, 0), // 10 + 4 + 26 bytes, not padded
        ] {
            let mut options =
                Options { timestamps, states: states(0), sack: blocks(sack), ..Options::default() };
            let mut added = Options { states: None, ..options.clone() };
            assert!(!added.add_state(RouterState::default()), "nobody asked");
            let entry = |router| RouterState { router, ..RouterState::default() };
            let fit = (1..=9).take_while(|router| options.add_state(entry(*router))).count();
            assert_eq!(fit, room, "{options:?}");
            assert_eq!(decode(&written(&options), false), Ok(options), "and nothing is left off");
        }
    }

    #[test]
    fn blocks_are_left_off_before_states_and_states_that_do_not_fit() {
        let timestamps = Some(Timestamps::default());
        let crowded = Options { timestamps, states: states(3), sack: blocks(4), ..Options::default() };
        let left = Options { timestamps, states: states(2), ..Options::default() };
        assert_eq!(decode(&written(&crowded), false), Ok(left));
        let crowded = Options { timestamps, states: states(1), sack: blocks(4), ..Options::default() };
        let left = Options { timestamps, states: states(1), sack: blocks(1), ..Options::default() };
        assert_eq!(decode(&written(&crowded), false), Ok(left));
    }

    #[test]
    fn units_are_rounded_and_saturate() {
        assert_eq!([0.0, 31.9, 32.0, 1500.0, 1e9, -5.0].map(RouterState::units), [0, 0, 1, 23, 65_535, 0]);
        assert_eq!(
            [0.0, 0.5, 1.0, 1.25, 1e3, f64::NAN].map(RouterState::parts),
            [0, 128, 256, 320, 65_535, 0]
        );
        let state = RouterState { queue: 23, average: 1, load: 320, ..RouterState::default() };
        assert_eq!((state.queue_bytes(), state.average_bytes(), state.load_ratio()), (1472, 64, 1.25));
    }

    #[test]
    fn a_state_is_appended_where_the_invitation_stands_and_all_else_is_kept() {
        let state = RouterState { router: 1, queue: 0x0102, average: 0x0304, load: 256, time: 0xFFFF };
        let entry = [0, 1, 1, 2, 3, 4, 1, 0, 0xFF, 0xFF];
        let append = |options: &[u8]| append(options, &state);
        let own = [253, 14, 0x4E, 0x57];
        assert_eq!(append(&[253, 4, 0x4E, 0x57]), Some([&[1, 1], &own[..], &entry].concat()));
        // An option that is unknown here, whose last byte looks like a NOP, and one behind.
        let strange = [&[99, 4, 7, 1, 253, 4, 0x4E, 0x57, 1, 30, 3, 1][..], &[0, 9, 9, 9]].concat();
        let wanted = [&[99, 4, 7, 1, 1, 1][..], &own, &entry, &[1, 30, 3, 1]].concat();
        assert_eq!(append(&strange), Some(wanted));
        // 26 bytes that are not known, and 14: there is room without the NOPs only.
        let mut full = vec![1, 1, 99, 26];
        full.extend([5; 24]);
        full.extend([253, 4, 0x4E, 0x57, 1, 1, 1, 0]);
        assert_eq!(append(&full), Some([&full[2..28], &own, &entry].concat()));
        full[3] = 27;
        full.insert(4, 5);
        assert_eq!(append(&full), None, "no room");
        for other in
            [&[][..], &[1, 1, 1, 1], &[0, 253, 4, 0x4E, 0x57], &[253, 4, 0x4E, 0x58], &[253, 2], &[8]]
        {
            assert_eq!(append(other), None, "nobody invites: {other:?}");
        }
        assert_eq!(append(&[99, 9, 253, 4, 0x4E, 0x57]), None, "it reaches beyond the header");
        assert_eq!(append(&[&[253, 5, 0x4E, 0x57, 0][..], &[1; 3]].concat()), None, "half an entry");
    }

    /// Bytes in which our experiment is not one in a billion.
    fn option_bytes() -> impl Strategy<Value = Vec<u8>> {
        let ours = (0usize..=3, any::<[u8; 30]>())
            .prop_map(|(n, body)| [&[253, 4 + 10 * n as u8, 0x4E, 0x57], &body[..10 * n]].concat());
        let stamps = any::<[u8; 8]>().prop_map(|body| [&[8, 10], &body[..]].concat());
        let sack = (1usize..=4, any::<[u8; 32]>())
            .prop_map(|(n, body)| [&[5, 2 + 8 * n as u8], &body[..8 * n]].concat());
        let any = prop::collection::vec(prop_oneof![0u8..11, any::<u8>()], 0..=40);
        prop::collection::vec(prop_oneof![ours, stamps, sack, any], 1..=4).prop_map(|options| {
            let mut bytes = options.concat();
            bytes.truncate(40);
            bytes
        })
    }

    proptest! {
        #[test]
        fn a_state_appended_to_bytes_is_the_state_added_to_what_they_say(bytes in option_bytes(), own: [u16; 5]) {
            let [router, queue, average, load, time] = own;
            let state = RouterState { router, queue, average, load, time };
            let Ok(mut options) = decode(&bytes, false) else { return Ok(()) };
            if let Some(appended) = append(&bytes, &state) {
                prop_assert!(appended.len() <= 40 && appended.len() % 4 == 0);
                prop_assert!(options.add_state(state));
                prop_assert_eq!(decode(&appended, false), Ok(options));
            } else if bytes == written(&options) {
                prop_assert!(!options.add_state(state), "as written here, it has the same room: {options:?}");
            }
        }

        #[test]
        fn what_was_read_can_be_written_and_reads_the_same(
            bytes in option_bytes(), syn: bool,
        ) {
            if let Ok(options) = decode(&bytes, syn) {
                prop_assert_eq!(decode(&written(&options), syn), Ok(options));
            }
        }
    }
}
