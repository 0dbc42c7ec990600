//! Where the bytes of a stream wait. The state machine speaks of stream offsets only; what stands behind them is the payload's
//! own affair: nothing in the simulator (a [`Length`] is only counted), a ring of bytes on real hosts.

use crate::wire::tcp::{Length, Payload};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

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

impl Buffer<Vec<u8>> for Ring {
    fn write(&mut self, at: u64, data: &Vec<u8>, skip: u32, len: u32) {
        let from = (at - self.base) as usize;
        if self.bytes.len() < from + len as usize {
            self.bytes.resize(from + len as usize, 0);
        }
        let source = &data[skip as usize..(skip + len) as usize];
        self.bytes.range_mut(from..from + len as usize).zip(source).for_each(|(b, s)| *b = *s);
    }
    fn copy(&self, at: u64, len: u32) -> Vec<u8> {
        let from = (at - self.base) as usize;
        self.bytes.range(from..from + len as usize).copied().collect()
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
}
