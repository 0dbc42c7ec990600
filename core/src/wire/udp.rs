//! UDP (RFC 768).
//!
//! [`Message`] is the value of the project's own traffic: its payload is a length, and a number in its first eight bytes if
//! there are as many. What other programs send is read through [`View`].

use alloc::vec::Vec;

use super::checksum::Pseudo;
use super::{DecodeError, TooLong, protocol, u16_at};

/// Bytes of a UDP header.
pub const HEADER: u32 = 8;

/// Bytes of a [`Message`]'s number at the head of the payload.
const NUMBER: usize = 8;

/// A UDP datagram in bytes: header and payload are known to lie within them, nothing else is checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Looks at `bytes`, which begin with a UDP header; what follows the datagram is left out of the view.
    ///
    /// # Errors
    /// `Truncated` if there are fewer bytes than the header or its length field announces; `Malformed` if that field does not
    /// even cover the header.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        if bytes.len() < HEADER as usize {
            return Err(DecodeError::Truncated);
        }
        let length = u16_at(bytes, 4) as usize;
        if length < HEADER as usize {
            return Err(DecodeError::Malformed("length"));
        }
        bytes.get(..length).map(View).ok_or(DecodeError::Truncated)
    }

    /// Source port.
    pub fn source(self) -> u16 {
        u16_at(self.0, 0)
    }
    /// Destination port.
    pub fn destination(self) -> u16 {
        u16_at(self.0, 2)
    }
    /// The checksum; zero if the sender computed none.
    pub fn checksum(self) -> u16 {
        u16_at(self.0, 6)
    }
    /// What the datagram carries.
    pub fn payload(self) -> &'a [u8] {
        &self.0[HEADER as usize..]
    }
    /// Whether the checksum fits, or is absent where it may be: in IPv4 (RFC 768), not in IPv6 (RFC 8200 section 8.1).
    pub fn is_intact(self, pseudo: Pseudo) -> bool {
        match self.checksum() {
            0 => !pseudo.is_v6(),
            _ => pseudo.over(protocol::UDP, self.0).is_intact(),
        }
    }
}

/// A UDP datagram of which only the payload's length exists: what the simulator moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Payload bytes.
    pub length: u32,
    /// The sender's count of datagrams, carried at the head of the payload, so that the sink can tell what was lost.
    pub number: u64,
}

impl Message {
    /// Bytes at the UDP level.
    #[inline]
    pub const fn size(&self) -> u32 {
        HEADER + self.length
    }

    /// The datagram at the start of `bytes`; its checksum is tested if the addresses around it are given. The number of a
    /// payload shorter than eight bytes is 0.
    ///
    /// # Errors
    /// As [`View::new`]; `Checksum` if the checksum does not fit.
    pub fn decode(bytes: &[u8], pseudo: Option<Pseudo>) -> Result<Message, DecodeError> {
        let view = View::new(bytes)?;
        if pseudo.is_some_and(|pseudo| !view.is_intact(pseudo)) {
            return Err(DecodeError::Checksum);
        }
        let payload = view.payload();
        Ok(Message {
            source: view.source(),
            destination: view.destination(),
            length: payload.len() as u32,
            number: payload.first_chunk::<NUMBER>().map_or(0, |number| u64::from_be_bytes(*number)),
        })
    }

    /// Appends the datagram to `out`: header, number in network byte order if eight bytes have room, zeros for the rest.
    ///
    /// # Errors
    /// [`TooLong`] if it exceeds 65535 bytes.
    pub fn encode(&self, pseudo: Pseudo, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let size =
            self.length.checked_add(HEADER).and_then(|size| u16::try_from(size).ok()).ok_or(TooLong)?;
        let start = out.len();
        out.extend(self.source.to_be_bytes());
        out.extend(self.destination.to_be_bytes());
        out.extend(size.to_be_bytes());
        out.extend([0, 0]);
        if self.length as usize >= NUMBER {
            out.extend(self.number.to_be_bytes());
        }
        out.resize(start + size as usize, 0);
        // A sum of zero is sent as its other form, since a zero field means "none computed".
        let checksum = match pseudo.over(protocol::UDP, &out[start..]).checksum() {
            0 => 0xFFFF,
            checksum => checksum,
        };
        out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn v4() -> Pseudo {
        Pseudo::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }

    #[test]
    fn a_message_worked_out_by_hand() {
        let mut bytes = vec![];
        Message { source: 1000, destination: 2000, length: 9, number: 5 }.encode(v4(), &mut bytes).unwrap();
        // Pseudo-header 0A00+0001+0A00+0002+0011+0011 = 1425, header 03E8+07D0+0011 makes 1FEE, payload 0005 makes 1FF3.
        assert_eq!(bytes, [0x03, 0xE8, 0x07, 0xD0, 0, 17, 0xE0, 0x0C, 0, 0, 0, 0, 0, 0, 0, 5, 0]);
    }

    #[test]
    fn a_missing_checksum_passes_in_ipv4_only() {
        let bytes = [0, 1, 0, 2, 0, 8, 0, 0];
        assert!(Message::decode(&bytes, Some(v4())).is_ok());
        let v6 = Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        assert_eq!(Message::decode(&bytes, Some(v6)), Err(DecodeError::Checksum));
        assert!(Message::decode(&bytes, None).is_ok());
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_ffff() {
        // The source port makes up what the other words lack to 0xFFFF.
        let mut message = Message { source: 0, destination: 0, length: 0, number: 0 };
        let mut bytes = vec![];
        message.encode(v4(), &mut bytes).unwrap();
        message.source = u16_at(&bytes, 6);
        bytes.clear();
        message.encode(v4(), &mut bytes).unwrap();
        assert_eq!(u16_at(&bytes, 6), 0xFFFF);
        assert_eq!(Message::decode(&bytes, Some(v4())), Ok(message));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(Message::decode(&[0, 1, 0, 2, 0, 7, 0, 0], None), Err(DecodeError::Malformed("length")));
        assert_eq!(Message::decode(&[0, 1, 0, 2, 0, 9, 0, 0], None), Err(DecodeError::Truncated));
        for length in [65_528, u32::MAX] {
            let mut out = vec![];
            let message = Message { length, ..Message::default() };
            assert_eq!((message.encode(v4(), &mut out), out.len()), (Err(TooLong), 0));
        }
    }

    proptest! {
        #[test]
        fn a_message_survives_the_wire_whole_or_not_at_all(
            source: u16, destination: u16, length in 0u32..300, number: u64, v6: bool,
        ) {
            let number = if length < 8 { 0 } else { number };
            let message = Message { source, destination, length, number };
            let pseudo = if v6 { Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST) } else { v4() };
            let mut bytes = vec![];
            message.encode(pseudo, &mut bytes).unwrap();
            prop_assert_eq!(Message::decode(&bytes, Some(pseudo)), Ok(message));
            for len in 0..bytes.len() {
                prop_assert_eq!(Message::decode(&bytes[..len], None), Err(DecodeError::Truncated));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Message::decode(&bytes, None);
        }
    }
}
