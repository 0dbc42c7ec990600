//! Frame relay: IP packets in Q.922 frames (ITU-T Q.922 annex A; RFC 2427 section 4), and the bits of a serial line that carry them
//! (ISO 13239: flags, and a zero stuffed after five ones, so that no data looks like a flag).
//!
//! ```text
//!   flag 7E | address: DLCI, FECN, BECN, DE | control 03 (UI) | NLPID CC (IPv4) or 8E (IPv6) | packet | FCS | flag 7E
//! ```

use super::DecodeError;
use alloc::vec::Vec;

const FLAG: u8 = 0x7E;
/// Unnumbered information.
const UI: u8 = 0x03;

/// The address field of two bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Address {
    /// Data link connection identifier, 10 bits; 16 to 991 are circuits.
    pub dlci: u16,
    /// Congestion was met on the way.
    pub fecn: bool,
    /// Congestion was met on the way back.
    pub becn: bool,
    /// May be discarded first.
    pub discard_eligible: bool,
}

impl Address {
    /// As on the line: six bits of the DLCI, C/R, 0; four bits of the DLCI, FECN, BECN, DE, 1.
    fn bytes(self) -> [u8; 2] {
        let marks =
            u8::from(self.fecn) << 3 | u8::from(self.becn) << 2 | u8::from(self.discard_eligible) << 1;
        [((self.dlci >> 4 & 0x3F) as u8) << 2, ((self.dlci & 0xF) as u8) << 4 | marks | 1]
    }

    fn read([high, low]: [u8; 2]) -> Result<Address, DecodeError> {
        // The extension bits say that there are two bytes.
        if high & 1 != 0 || low & 1 == 0 {
            return Err(DecodeError::Malformed("address"));
        }
        Ok(Address {
            dlci: u16::from(high >> 2) << 4 | u16::from(low >> 4),
            fecn: low & 8 != 0,
            becn: low & 4 != 0,
            discard_eligible: low & 2 != 0,
        })
    }
}

/// The frame of an IP packet, flags included, before any stuffing: the packet and 8 bytes.
///
/// # Errors
/// `Malformed` if it begins neither as IPv4 nor as IPv6.
pub fn encode(address: Address, packet: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let nlpid = match packet.first().map(|b| b >> 4) {
        Some(4) => 0xCC,
        Some(6) => 0x8E,
        Some(_) => return Err(DecodeError::Malformed("version")),
        None => return Err(DecodeError::Truncated),
    };
    let mut frame = Vec::with_capacity(packet.len() + 8);
    frame.push(FLAG);
    frame.extend(address.bytes());
    frame.extend([UI, nlpid]);
    frame.extend(packet);
    let fcs = fcs(&frame[1..]);
    frame.extend(fcs.to_le_bytes()); // least significant first, as its bits are
    frame.push(FLAG);
    Ok(frame)
}

/// The address and the IP packet of a frame with its flags.
///
/// # Errors
/// `Truncated`; `Checksum` if the FCS is wrong; `Malformed` if a field is not what [`encode`] writes.
pub fn decode(frame: &[u8]) -> Result<(Address, &[u8]), DecodeError> {
    let [FLAG, inside @ .., FLAG] = frame else { return Err(DecodeError::Malformed("flag")) };
    let Some((covered, sum)) = inside.split_last_chunk::<2>() else { return Err(DecodeError::Truncated) };
    let [high, low, control, nlpid, packet @ ..] = covered else { return Err(DecodeError::Truncated) };
    if fcs(covered) != u16::from_le_bytes(*sum) {
        return Err(DecodeError::Checksum);
    }
    if *control != UI {
        return Err(DecodeError::Malformed("control"));
    }
    if !matches!((nlpid, packet.first().map(|b| b >> 4)), (0xCC, Some(4)) | (0x8E, Some(6))) {
        return Err(DecodeError::Malformed("nlpid"));
    }
    Ok((Address::read([*high, *low])?, packet))
}

/// The frame check sequence: CRC-16 of ITU-T X.25, polynomial x^16 + x^12 + x^5 + 1, bits reversed.
pub fn fcs(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 1 != 0 { crc >> 1 ^ 0x8408 } else { crc >> 1 };
    !bytes.iter().fold(0xFFFF, |crc, byte| (0..8).fold(crc ^ u16::from(*byte), step))
}

/// How many zeros a serial line adds to what is between the flags of a frame: one after every five ones in a row.
pub fn stuffed(frame: &[u8]) -> u64 {
    let inside = frame.get(1..frame.len().saturating_sub(1)).unwrap_or_default();
    let bits = inside.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1));
    let count = |(ones, zeros), bit| match (bit, ones) {
        (1, 4) => (0, zeros + 1),
        (1, _) => (ones + 1, zeros),
        _ => (0, zeros),
    };
    bits.fold((0, 0), count).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const ADDRESS: Address = Address { dlci: 500, fecn: true, becn: false, discard_eligible: true };

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(fcs(b"123456789"), 0x906E);
    }

    #[test]
    fn a_packet_of_504_bytes_is_the_papers_frame_of_512() {
        let mut packet = vec![0; 504];
        packet[0] = 0x45;
        let frame = encode(ADDRESS, &packet).unwrap();
        // DLCI 500 is 011111 0100: 7C, and 0100 with FECN, DE and the end of the address.
        assert_eq!((frame.len(), &frame[..5]), (512, &[0x7E, 0x7C, 0x4B, 0x03, 0xCC][..]));
        assert_eq!(decode(&frame), Ok((ADDRESS, &packet[..])));
    }

    #[test]
    fn five_ones_bring_a_zero() {
        assert_eq!(stuffed(&[FLAG, 0xFF, 0xFF, FLAG]), 3, "sixteen ones");
        assert_eq!(stuffed(&[FLAG, 0x1F, 0x1F, FLAG]), 2);
        assert_eq!((stuffed(&[FLAG, 0xAA, FLAG]), stuffed(&[]), stuffed(&[FLAG])), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_and_a_flipped_bit_is_noticed(
            data in prop::collection::vec(any::<u8>(), 1..600),
            flip in any::<prop::sample::Index>(),
        ) {
            let mut packet = data;
            packet[0] = 0x60;
            let mut frame = encode(ADDRESS, &packet).unwrap();
            prop_assert_eq!(decode(&frame), Ok((ADDRESS, &packet[..])));
            let bit = 8 + flip.index(8 * (frame.len() - 2));
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&frame).is_err());
        }

        #[test]
        fn rubbish_never_panics(data in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&data);
            let _ = encode(ADDRESS, &data);
            stuffed(&data);
        }
    }
}
