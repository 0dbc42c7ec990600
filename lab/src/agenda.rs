//! What happens next: one entry per component, not one per packet.
//!
//! A tournament tree over fixed slots (Knuth, TAOCP 3, section 5.4.1): each slot holds the next instant at which its
//! component wants to be called, and every node the earlier of its two children, which says in its own low bits whose it
//! is. Setting a slot replays the matches on its way to the root, at most log2(slots) comparisons without a search or a
//! shuffle. Equal instants go in the order in which they were set.

use narrows_core::Time;

/// The next event of every component.
pub struct Agenda {
    /// `tree[1]` is the winner; the children of `i` are `2i` and `2i + 1`; the leaves are the slots. An entry is one number:
    /// instant (64 bits), order of setting (40), slot (24).
    tree: Vec<u128>,
    leaves: usize,
    order: u64,
}

const NEVER: u128 = u128::MAX;
const SLOT_BITS: u32 = 24;
const SLOTS: usize = 1 << SLOT_BITS;

impl Agenda {
    /// An agenda of `slots` components, none of which wants anything.
    pub fn new(slots: usize) -> Agenda {
        assert!(slots < SLOTS, "{slots} components do not fit on the agenda");
        let leaves = slots.next_power_of_two().max(2);
        Agenda { tree: vec![NEVER; 2 * leaves], leaves, order: 0 }
    }

    /// The component wants to be called at `at`, and not when it said before.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Time) {
        self.order = self.order.wrapping_add(1 << SLOT_BITS);
        self.replay(slot, (at.as_nanos() as u128) << 64 | self.order as u128 | slot as u128);
    }

    /// The component wants nothing any more.
    #[inline]
    pub fn clear(&mut self, slot: usize) {
        self.replay(slot, NEVER);
    }

    /// When the component is to be called; `Time::MAX` if not.
    #[inline]
    pub fn at(&self, slot: usize) -> Time {
        instant(self.tree[self.leaves + slot])
    }

    /// The next instant and whose it is; `Time::MAX` if nobody wants anything.
    #[inline]
    pub fn next(&self) -> (Time, usize) {
        let winner = self.tree[1];
        (instant(winner), winner as usize % SLOTS)
    }

    #[inline]
    fn replay(&mut self, slot: usize, key: u128) {
        let (mut node, mut winner) = (self.leaves + slot, key);
        self.tree[node] = key;
        while node > 1 {
            winner = winner.min(self.tree[node ^ 1]);
            node /= 2;
            // A match that this slot neither won before nor wins now changes nothing further up.
            if self.tree[node] == winner {
                break;
            }
            self.tree[node] = winner;
        }
    }
}

#[inline]
fn instant(key: u128) -> Time {
    Time::from_nanos((key >> 64) as u64)
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
