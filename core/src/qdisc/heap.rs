//! A heap of classes by a key, smallest first, in which the place of each class is known: so that one whose key changes moves, and
//! one that ends goes, in O(log n). Four children to a node: half the levels of a binary heap, and a node's children side by side.

use alloc::vec::Vec;

const NOWHERE: u32 = u32::MAX;

/// Classes, each at most once, the smallest key first; of equal keys the lower class number.
pub(super) struct Heap<K> {
    items: Vec<(K, u32)>,
    /// Where in `items` each class is.
    places: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    pub fn new() -> Heap<K> {
        Heap { items: Vec::new(), places: Vec::new() }
    }

    /// The smallest key, and whose it is.
    #[inline]
    pub fn first(&self) -> Option<(K, usize)> {
        self.items.first().map(|(key, class)| (*key, *class as usize))
    }

    /// Whether the class is here.
    #[inline]
    pub fn has(&self, class: usize) -> bool {
        self.places.get(class).is_some_and(|at| *at != NOWHERE)
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The class has this key from now on, whether it was here or not.
    #[inline]
    pub fn set(&mut self, class: usize, key: K) {
        if class >= self.places.len() {
            self.places.resize(class + 1, NOWHERE);
        }
        match self.places[class] {
            NOWHERE => {
                self.items.push((key, class as u32));
                self.rise(self.items.len() - 1);
            }
            at => {
                self.items[at as usize].0 = key;
                let at = self.rise(at as usize);
                self.sink(at);
            }
        }
    }

    /// The class is here no more; whether it was.
    pub fn remove(&mut self, class: usize) -> bool {
        let Some(at) = self.places.get(class).copied().filter(|at| *at != NOWHERE) else { return false };
        let at = at as usize;
        self.places[class] = NOWHERE;
        let last = self.items.pop();
        if let Some(last) = last
            && at < self.items.len()
        {
            self.items[at] = last;
            let at = self.rise(at);
            self.sink(at);
        }
        true
    }

    /// Takes out the first one.
    #[inline]
    pub fn pop(&mut self) -> Option<(K, usize)> {
        let first = self.first()?;
        self.remove(first.1);
        Some(first)
    }

    /// Moves the item up to where it belongs; where that is.
    fn rise(&mut self, mut at: usize) -> usize {
        let item = self.items[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.items[parent] <= item {
                break;
            }
            self.put(at, self.items[parent]);
            at = parent;
        }
        self.put(at, item);
        at
    }

    /// Moves the item down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        let item = self.items[at];
        loop {
            let first = 4 * at + 1;
            let Some(children) = self.items.get(first..self.items.len().min(first + 4)) else { break };
            let Some((i, least)) = children.iter().enumerate().min_by_key(|(_, child)| **child) else {
                break;
            };
            if item <= *least {
                break;
            }
            self.put(at, *least);
            at = first + i;
        }
        self.put(at, item);
    }

    fn put(&mut self, at: usize, item: (K, u32)) {
        self.items[at] = item;
        self.places[item.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_sorted_map_by_value(steps in prop::collection::vec((0usize..40, 0u64..100, 0u8..4), 1..300)) {
            let (mut heap, mut model) = (Heap::new(), BTreeMap::new());
            for (class, key, what) in steps {
                match what {
                    0 => prop_assert_eq!(heap.remove(class), model.remove(&class).is_some()),
                    1 => {
                        let least = model.iter().map(|(class, key)| (*key, *class)).min();
                        prop_assert_eq!(heap.pop(), least);
                        least.map(|(_, class)| model.remove(&class));
                    }
                    _ => {
                        heap.set(class, key);
                        model.insert(class, key);
                    }
                }
                prop_assert_eq!(heap.first(), model.iter().map(|(class, key)| (*key, *class)).min());
                prop_assert_eq!(heap.is_empty(), model.is_empty());
            }
        }
    }
}
