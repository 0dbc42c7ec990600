//! Where the bytes of a stream wait. The state machine speaks of stream offsets only; what stands behind them is the payload's
//! own affair: nothing in the simulator (a [`Length`] is only counted), a ring of bytes on real hosts.

use crate::wire::tcp::{Length, Payload};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// A payload that knows how to wait.
pub trait Stored: Payload + Send {
    /// Where it waits.
    type Buffer: Buffer<Self> + Default + Send;
}

/// A window of a byte stream, addressed by stream offset.
pub trait Buffer<P> {
    /// Places `data[skip..skip + len]` at stream offset `at`, which may lie beyond what is there already.
    fn write(&mut self, at: u64, data: &P, skip: u32, len: u32);
    /// Copies `len` bytes at offset `at`; they must have been written and not released.
    fn copy(&self, at: u64, len: u32) -> P;
    /// Forgets everything below `until`.
    fn release(&mut self, until: u64);
}

/// The buffer of a stream that has no bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBytes;

impl Stored for Length {
    type Buffer = NoBytes;
}

impl Buffer<Length> for NoBytes {
    #[inline]
    fn write(&mut self, _at: u64, _data: &Length, _skip: u32, _len: u32) {}
    #[inline]
    fn copy(&self, _at: u64, len: u32) -> Length {
        Length(len)
    }
    #[inline]
    fn release(&mut self, _until: u64) {}
}

/// A ring of bytes.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    base: u64,
    bytes: VecDeque<u8>,
}

impl Stored for Vec<u8> {
    type Buffer = Ring;
}

/// Where the `len` bytes at `from` lie in a ring whose first piece has `front` bytes: in that piece, and in the other.
fn halves(front: usize, from: usize, len: usize) -> (Range<usize>, Range<usize>) {
    let to = from + len;
    (from.min(front)..to.min(front), from.max(front) - front..to.max(front) - front)
}

impl Buffer<Vec<u8>> for Ring {
    fn write(&mut self, at: u64, data: &Vec<u8>, skip: u32, len: u32) {
        let from = (at - self.base) as usize;
        let source = &data[skip as usize..(skip + len) as usize];
        if self.bytes.len() < from {
            self.bytes.resize(from, 0); // a hole
        }
        // What is there already is overwritten, the rest appended.
        let (over, beyond) = source.split_at(source.len().min(self.bytes.len() - from));
        let (front, back) = self.bytes.as_mut_slices();
        let (in_front, in_back) = halves(front.len(), from, over.len());
        let (first, second) = over.split_at(in_front.len());
        front[in_front].copy_from_slice(first);
        back[in_back].copy_from_slice(second);
        self.bytes.extend(beyond);
    }
    fn copy(&self, at: u64, len: u32) -> Vec<u8> {
        let (front, back) = self.bytes.as_slices();
        let (in_front, in_back) = halves(front.len(), (at - self.base) as usize, len as usize);
        [&front[in_front], &back[in_back]].concat()
    }
    fn release(&mut self, until: u64) {
        let n = (until.saturating_sub(self.base) as usize).min(self.bytes.len());
        self.bytes.drain(..n);
        self.base = self.base.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_bytes_in_any_order_and_gives_them_back_in_order() {
        let mut ring = Ring::default();
        ring.write(3, &b"xdef".to_vec(), 1, 3);
        ring.write(0, &b"abc".to_vec(), 0, 3);
        assert_eq!(ring.copy(0, 6), b"abcdef");
        ring.release(2);
        assert_eq!(ring.copy(2, 4), b"cdef");
        ring.write(6, &b"gh".to_vec(), 0, 2);
        assert_eq!(ring.copy(5, 3), b"fgh");
    }

    #[test]
    fn a_ring_that_has_turned_many_times_still_holds_what_was_written() {
        let (mut ring, byte) = (Ring::default(), |at: u64| (at * 7 + at / 256) as u8);
        let piece = |from: u64, to: u64| (from..to).map(byte).collect::<Vec<u8>>();
        let (mut read, mut written) = (0, 0);
        for i in 1..2000u64 {
            let ahead = written + i * 31 % 50; // early, behind a hole that is filled afterwards
            let end = ahead + 1 + i * 17 % 90;
            ring.write(ahead, &piece(ahead, end), 0, (end - ahead) as u32);
            let before = read.max(written - written.min(40));
            ring.write(before, &piece(before, ahead + 1), 0, (ahead + 1 - before) as u32); // over both edges
            written = end;
            assert_eq!(ring.copy(read, (written - read) as u32), piece(read, written));
            read += (written - read) * (i % 3) / 2;
            ring.release(read);
        }
    }
}
