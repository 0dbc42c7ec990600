//! The Internet checksum: the ones' complement of the ones' complement sum of 16-bit words (RFC 1071), over a header (IPv4) or
//! over a segment and a pseudo-header of what lies around it (TCP, UDP); and its update in place when a router changes one
//! word of a packet it passes on (RFC 1624).
//!
//! The sum is associative, and a carry may be added back at any width (RFC 1071 section 2), so it runs over 32-bit words in a
//! 64-bit register and folds once at the end.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A ones' complement sum under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds one number of 16 or 32 bits.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u32) -> Sum {
        Sum(self.0 + word as u64)
    }

    /// Adds bytes that begin at an even offset of the summed message; an odd last byte counts as padded with a zero.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut tail = [0; 4];
        tail[..rest.len()].copy_from_slice(rest);
        let sum = words.iter().map(|w| u32::from_be_bytes(*w) as u64).sum::<u64>();
        Sum(self.0 + sum + u32::from_be_bytes(tail) as u64)
    }

    /// The sum in 16 bits, carries added back.
    #[inline]
    pub const fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum as u16
    }

    /// What belongs in the checksum field, if the field was zero or left out while summing.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether a message summed together with its checksum is intact.
    #[inline]
    pub const fn is_intact(self) -> bool {
        self.fold() == 0xFFFF
    }
}

/// What TCP and UDP checksums cover of the IP header: the addresses here, protocol and length when they are known. The words of
/// the two pseudo-headers (RFC 9293 section 3.1, RFC 8200 section 8.1) differ only in their zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pseudo {
    addresses: Sum,
    v6: bool,
}

impl Pseudo {
    /// Between two IPv4 addresses.
    pub fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> Pseudo {
        Pseudo { addresses: Sum::default().word(source.to_bits()).word(destination.to_bits()), v6: false }
    }

    /// Between two IPv6 addresses. With a routing header, `destination` is the final one.
    pub fn v6(source: Ipv6Addr, destination: Ipv6Addr) -> Pseudo {
        let addresses = Sum::default().bytes(&source.octets()).bytes(&destination.octets());
        Pseudo { addresses, v6: true }
    }

    /// Whether these are IPv6 addresses, where a UDP checksum is compulsory (RFC 8200 section 8.1).
    pub const fn is_v6(self) -> bool {
        self.v6
    }

    /// The sum of pseudo-header and `message`, a TCP segment or UDP datagram with its header.
    pub fn over(self, protocol: u8, message: &[u8]) -> Sum {
        self.addresses.word(protocol as u32).word(message.len() as u32).bytes(message)
    }
}

/// The checksum of a message in which one 16-bit word changes from `old` to `new`: RFC 1624, equation 3,
/// `HC' = ~(~HC + ~m + m')`. Equation 4 and RFC 1141 get the corner case of its section 4 wrong.
#[inline]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(!checksum as u64 + !old as u64 + new as u64).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn rfc_1071_section_3_sums_to_ddf2() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]);
        assert_eq!((sum.fold(), sum.checksum()), (0xDDF2, 0x220D));
    }

    #[test]
    fn an_odd_last_byte_is_the_high_half_of_its_word() {
        for (bytes, sum) in
            [(&[0x12][..], 0x1200), (&[0, 0, 0x12], 0x1200), (&[0, 1, 0, 1, 0x12], 0x1202), (&[], 0)]
        {
            assert_eq!(Sum::default().bytes(bytes).fold(), sum, "{bytes:?}");
        }
    }

    #[test]
    fn rfc_1624_section_4_example_gives_zero_and_not_ffff() {
        assert_eq!(update(0xDD2F, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn wide_words_sum_as_rfc_1071_does_word_by_word(bytes in any::<Vec<u8>>()) {
            let mut sum = 0u32;
            for pair in bytes.chunks(2) {
                sum += (pair[0] as u32) << 8 | *pair.get(1).unwrap_or(&0) as u32;
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
            prop_assert_eq!(Sum::default().bytes(&bytes).fold(), sum as u16);
        }

        #[test]
        fn an_update_equals_summing_afresh(mut words in prop::collection::vec(any::<u16>(), 2..40), at: prop::sample::Index, new: u16) {
            // A header is never all zeros, the one message whose sum has two forms.
            words[0] |= 1;
            let at = 1 + at.index(words.len() - 1);
            let sum = |words: &[u16]| words.iter().fold(Sum::default(), |s, &w| s.word(w as u32)).checksum();
            let (before, old) = (sum(&words), words[at]);
            words[at] = new;
            prop_assert_eq!(update(before, old, new), sum(&words));
        }
    }
}
