//! What arrived ahead of the next expected byte: disjoint ranges of stream offsets, merged as they touch (RFC 9293
//! section 3.10.7.4). Inserting and advancing are O(log n) in the number of ranges.

use alloc::collections::BTreeMap;

/// Ranges `[start, end)` beyond the next expected byte.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    ranges: BTreeMap<u64, u64>,
    /// The range that the most recent insertion became part of: RFC 2018's first block.
    latest: u64,
}

impl Reassembly {
    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds `[start, end)`; the parts already there are kept once. An empty range adds nothing.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= start
        {
            (start, end) = (before, end.max(before_end));
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            end = end.max(next_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
        self.latest = start;
    }

    /// The next expected byte is now `next`: takes what follows it without a gap and returns the new next expected byte.
    pub fn advance(&mut self, mut next: u64) -> u64 {
        while let Some(entry) = self.ranges.first_entry()
            && *entry.key() <= next
        {
            next = next.max(entry.remove());
        }
        next
    }

    /// The ranges that wait, the one with the most recent arrival first, then upwards: the order of SACK blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let latest = self.ranges.get(&self.latest).map(|&end| (self.latest, end));
        latest.into_iter().chain(self.ranges.iter().map(|(&s, &e)| (s, e)).filter(|(s, _)| *s != self.latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn ranges_merge_and_the_latest_comes_first() {
        let mut r = Reassembly::default();
        for (s, e) in [(10, 20), (40, 50), (70, 80), (30, 40)] {
            r.insert(s, e);
        }
        assert_eq!(r.blocks().collect::<Vec<_>>(), [(30, 50), (10, 20), (70, 80)]);
        assert_eq!(r.advance(10), 20);
        assert_eq!(r.advance(25), 25, "a gap remains");
        assert_eq!(r.advance(30), 50);
        assert!(!r.is_empty());
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(ops in proptest::collection::vec((0u64..200, 1u64..30), 1..60)) {
            let (mut r, mut bits, mut next) = (Reassembly::default(), [false; 4096], 0usize);
            for (i, (start, len)) in ops.into_iter().enumerate() {
                let start = start.max(next as u64);
                r.insert(start, start + len);
                (start..start + len).for_each(|b| bits[b as usize] = true);
                if i % 3 == 0 {
                    while bits[next] { next += 1; }
                    let got = r.advance(next as u64) as usize;
                    prop_assert_eq!(got, next);
                }
                let waiting: u64 = r.blocks().map(|(s, e)| e - s).sum();
                prop_assert_eq!(waiting, bits[next..].iter().filter(|b| **b).count() as u64);
            }
        }
    }
}
