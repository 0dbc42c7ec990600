//! What happens next: one entry per component, not one per packet.
//!
//! A tournament tree over fixed slots (Knuth, TAOCP 3, section 5.4.1): each slot holds the next instant at which its
//! component wants to be called; setting a slot replays the matches on its way to the root, log2(slots) comparisons without a
//! search or a shuffle. Equal instants go in the order in which they were set.

use narrows_core::Time;

/// The next event of every component.
pub struct Agenda {
    /// (instant, order of setting) of each slot, as one number: instants in the high half.
    keys: Vec<u128>,
    /// `tree[1]` is the winner; the children of `i` are `2i` and `2i + 1`; the leaves are the slots.
    tree: Vec<u32>,
    leaves: usize,
    order: u64,
}

const NEVER: u128 = u128::MAX;

impl Agenda {
    /// An agenda of `slots` components, none of which wants anything.
    pub fn new(slots: usize) -> Agenda {
        let leaves = slots.next_power_of_two().max(2);
        let mut tree = vec![0; 2 * leaves];
        for i in (1..2 * leaves).rev() {
            tree[i] = if i >= leaves { (i - leaves) as u32 } else { tree[2 * i] };
        }
        Agenda { keys: vec![NEVER; leaves], tree, leaves, order: 0 }
    }

    /// The component wants to be called at `at`, and not when it said before.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        self.order += 1;
        self.replay(slot, (at.as_nanos() as u128) << 64 | self.order as u128);
    }

    /// The component wants nothing any more.
    #[inline]
    pub fn clear(&mut self, slot: usize) {
        self.replay(slot, NEVER);
    }

    /// When the component is to be called; `Time::MAX` if not.
    #[inline]
    pub fn at(&self, slot: usize) -> Time {
        Time::from_nanos((self.keys[slot] >> 64) as u64)
    }

    /// The next instant and whose it is; `Time::MAX` if nobody wants anything.
    #[inline]
    pub fn next(&self) -> (Time, usize) {
        let slot = self.tree[1] as usize;
        (self.at(slot), slot)
    }

    #[inline]
    fn replay(&mut self, slot: usize, key: u128) {
        self.keys[slot] = key;
        let mut node = (slot + self.leaves) / 2;
        while node > 0 {
            let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
            let winner = if self.keys[left as usize] <= self.keys[right as usize] { left } else { right };
            // A match that neither involved nor now involves this slot changes nothing further up.
            if self.tree[node] == winner && winner as usize != slot {
                break;
            }
            self.tree[node] = winner;
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_core::Rng;

    #[test]
    fn agrees_with_a_sorted_list_over_many_changes() {
        let mut rng = Rng::new(7, 1);
        for slots in [1, 2, 3, 17, 64, 1000] {
            let mut agenda = Agenda::new(slots);
            let mut list = vec![(u64::MAX, 0u64); slots];
            for order in 1..20_000 {
                let slot = rng.below(slots as u64) as usize;
                if rng.chance(0.2) {
                    agenda.clear(slot);
                    list[slot].0 = u64::MAX;
                } else {
                    let at = rng.below(500);
                    agenda.set(slot, Time::from_nanos(at));
                    list[slot] = (at, order);
                }
                let (least, _) = list.iter().min().unwrap();
                let (at, who) = agenda.next();
                assert_eq!(at.as_nanos(), *least);
                if *least != u64::MAX {
                    assert_eq!(list[who], *list.iter().min().unwrap(), "the earliest set of equal instants");
                }
            }
        }
    }
}
