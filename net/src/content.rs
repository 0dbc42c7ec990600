//! What a transfer carries: bytes that look random, and that anyone can tell from their offset alone. So a receiver checks every
//! byte without a copy of what was sent, names the first wrong one, and hashes the whole.
//!
//! Word `i` of a stream is the SplitMix64 mixing function (Steele, Lea, Flood, OOPSLA 2014) of its index: no state, no period
//! within 2^64 words, a fraction of a nanosecond per byte.

use sha2::{Digest, Sha256};

/// A stream of bytes, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content(u64);

impl Content {
    /// The `number`th stream: a flow has its own, so that bytes of another one are wrong bytes.
    pub fn new(number: u64) -> Content {
        Content(number.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn word(self, index: u64) -> [u8; 8] {
        let mut z = (index ^ self.0).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31).to_le_bytes()
    }

    /// Writes the bytes from offset `at` on into `out`.
    pub fn fill(self, at: u64, out: &mut [u8]) {
        let (mut index, skip) = (at / 8, (at % 8) as usize);
        let (head, whole) = out.split_at_mut(((8 - skip) % 8).min(out.len()));
        if !head.is_empty() {
            head.copy_from_slice(&self.word(index)[skip..skip + head.len()]);
            index += 1;
        }
        for (i, piece) in whole.chunks_mut(8).enumerate() {
            piece.copy_from_slice(&self.word(index + i as u64)[..piece.len()]);
        }
    }

    /// SHA-256 of the first `len` bytes.
    pub fn digest(self, len: u64) -> [u8; 32] {
        let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
        for at in (0..len).step_by(PIECE) {
            let n = PIECE.min((len - at) as usize);
            self.fill(at, &mut piece[..n]);
            hash.update(&piece[..n]);
        }
        hash.finalize().into()
    }
}

/// So many bytes are made, written or read at a time.
pub const PIECE: usize = 64 * 1024;

/// A stream as it was received, in order.
#[derive(Clone)]
pub struct Received {
    content: Content,
    bytes: u64,
    wrong: Option<u64>,
    hash: Sha256,
    expected: Vec<u8>,
}

impl Received {
    /// Nothing yet of `content`.
    pub fn new(content: Content) -> Received {
        Received { content, bytes: 0, wrong: None, hash: Sha256::new(), expected: vec![0; PIECE] }
    }

    /// The next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        for piece in bytes.chunks(PIECE) {
            let expected = &mut self.expected[..piece.len()];
            self.content.fill(self.bytes, expected);
            if self.wrong.is_none() && piece != expected {
                let same = piece.iter().zip(&*expected).take_while(|(a, b)| a == b).count();
                self.wrong = Some(self.bytes + same as u64);
            }
            self.bytes += piece.len() as u64;
        }
    }

    /// How many there were.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offset of the first byte that was not what was sent.
    pub fn first_wrong(&self) -> Option<u64> {
        self.wrong
    }

    /// SHA-256 of all of them.
    pub fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_piece_of_a_stream_is_the_piece_of_the_whole(at in 0usize..300, len in 0usize..300, number: u64) {
            let content = Content::new(number);
            let (mut whole, mut piece) = ([0; 600], vec![0; len]);
            content.fill(0, &mut whole);
            content.fill(at as u64, &mut piece);
            prop_assert_eq!(&piece[..], &whole[at..at + len]);
        }
    }

    #[test]
    fn a_wrong_byte_is_found_where_it_is_and_changes_the_hash() {
        let content = Content::new(7);
        let mut bytes = vec![0; 200_000];
        content.fill(0, &mut bytes);
        let receive = |bytes: &[u8]| {
            let mut received = Received::new(content);
            bytes.chunks(70_001).for_each(|piece| received.take(piece));
            received
        };
        let good = receive(&bytes);
        assert_eq!((good.first_wrong(), good.bytes()), (None, 200_000));
        assert_eq!(good.digest(), content.digest(200_000));
        bytes[150_003] ^= 1;
        let bad = receive(&bytes);
        assert_eq!(bad.first_wrong(), Some(150_003));
        assert_ne!(bad.digest(), content.digest(200_000));
        assert_ne!(Content::new(8).digest(100), content.digest(100), "another flow's bytes are others");
    }
}
