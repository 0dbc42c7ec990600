//! What routers say of their queues in ACKs that pass: an option for experiments (RFC 6994) of our own.
//!
//! ```text
//!   253 | length | 0x4E57 | one entry per router, in the order in which the ACK passes them:
//!                           router | queue | average | load | time      five numbers of 16 bits
//! ```
//!
//! The ExID is "NW". It is not registered with IANA, nor meant to leave a laboratory.
//!
//! The receiver of data puts the option without entries into its ACKs: routers may add to it, and see from it that the sender
//! understands. Both ends say so first in their SYNs, where it has no entries. Segments with data do not carry it: they are as
//! large as the path takes.

use super::Options;
use super::options::kind;
use alloc::vec::Vec;

/// Names the experiment (RFC 6994 section 3): "NW".
pub const EXPERIMENT: u16 = 0x4E57;

/// A queue and its line, as a router reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct RouterState {
    /// Which queue: a number that is its own on the path.
    pub router: u16,
    /// What waits now, in units of 64 bytes: up to 4 MiB, and no less than half a segment.
    pub queue: u16,
    /// The average of what waits, in the same unit.
    pub average: u16,
    /// What has arrived lately, in 256ths of what the line could carry meanwhile.
    pub load: u16,
    /// When the router says so: the low bits of its clock in milliseconds.
    pub time: u16,
}

impl RouterState {
    /// Bytes on the wire.
    pub const SIZE: u32 = 10;
    /// Bytes that a queue is counted in.
    pub const UNIT: u64 = 64;

    /// As many whole units as `bytes` are, rounded, at most what the field holds.
    pub fn units(bytes: f64) -> u16 {
        libm::round(bytes / Self::UNIT as f64).clamp(0.0, 65_535.0) as u16
    }

    /// A load of 1 (all that the line can carry) as 256, at most what the field holds.
    pub fn parts(load: f64) -> u16 {
        libm::round(load * 256.0).clamp(0.0, 65_535.0) as u16
    }

    /// Bytes that wait.
    pub const fn queue_bytes(&self) -> u64 {
        self.queue as u64 * Self::UNIT
    }

    /// Bytes that wait on average.
    pub const fn average_bytes(&self) -> u64 {
        self.average as u64 * Self::UNIT
    }

    /// Appends its bytes to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let RouterState { router, queue, average, load, time } = *self;
        [router, queue, average, load, time].into_iter().for_each(|n| out.extend(n.to_be_bytes()));
    }

    /// The load, 1 for all that the line can carry.
    pub fn load_ratio(&self) -> f64 {
        f64::from(self.load) / 256.0
    }
}

/// Up to three states, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterStates {
    states: [RouterState; Self::MOST],
    len: u8,
}

impl RouterStates {
    /// Three fit into 40 bytes of options, two beside timestamps.
    pub const MOST: usize = 3;

    /// Adds a state behind the others; `false` if there are as many as can be.
    pub fn push(&mut self, state: RouterState) -> bool {
        let Some(slot) = self.states.get_mut(self.len as usize) else { return false };
        *slot = state;
        self.len += 1;
        true
    }

    /// Takes out the last one.
    fn pop(&mut self) {
        if let Some(last) = self.len.checked_sub(1) {
            (self.len, self.states[last as usize]) = (last, RouterState::default());
        }
    }

    /// The states, in order.
    pub fn as_slice(&self) -> &[RouterState] {
        &self.states[..self.len as usize]
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the option, without padding.
    pub(super) const fn bytes(&self) -> u32 {
        4 + self.len as u32 * RouterState::SIZE
    }

    /// The first states, those that fit into an option of so many bytes; `None` if not even the option does.
    pub(super) fn within(&self, bytes: u32) -> Option<&[RouterState]> {
        let fit = bytes.checked_sub(4)? / RouterState::SIZE;
        Some(&self.as_slice()[..(fit as usize).min(self.len as usize)])
    }
}

impl Options {
    /// A router adds its state. `false`, and nothing changed, if the option is not there or has no room.
    pub fn add_state(&mut self, state: RouterState) -> bool {
        if !self.states.as_mut().is_some_and(|states| states.push(state)) {
            return false;
        }
        let fits = self.tight_size() <= Options::ROOM;
        if !fits && let Some(states) = &mut self.states {
            states.pop();
        }
        fits
    }
}

/// The options of an ACK, with a router's state added to the one that invites to it. All others are kept as they are, known here or
/// not; NOPs are left out if only so there is room. A multiple of four bytes; `None` if nobody invites, if there is no room, or if
/// the options cannot be read.
pub fn append(options: &[u8], state: &RouterState) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = options;
    while let [kind, behind @ ..] = rest {
        let len = match *kind {
            kind::END => break,
            kind::NOP => 1,
            _ => usize::from(*behind.first()?).max(2),
        };
        found.push(rest.get(..len)?);
        rest = &rest[len..];
    }
    while found.last() == Some(&&[kind::NOP][..]) {
        found.pop();
    }
    // If it is there twice the last counts, as for who reads it.
    let ours = found.iter().rposition(|option| match option {
        [kind::EXPERIMENT, _, a, b, ..] => u16::from_be_bytes([*a, *b]) == EXPERIMENT,
        _ => false,
    })?;
    let entries = found[ours].len() as u32 - 4;
    if !entries.is_multiple_of(RouterState::SIZE) || entries / RouterState::SIZE >= RouterStates::MOST as u32
    {
        return None;
    }
    let mut grown = found[ours].to_vec();
    grown[1] += RouterState::SIZE as u8;
    state.write(&mut grown);

    // NOPs right before it were its padding, which is another now.
    let padding = found[..ours].iter().rev().take_while(|option| option[0] == kind::NOP).count();
    let (before, after) = (&found[..ours - padding], &found[ours + 1..]);
    let start = before.concat();
    let nops = (start.len() + grown.len()).next_multiple_of(4) - start.len() - grown.len();
    let padded = [&start[..], &[kind::NOP; 3][..nops], &grown, &after.concat()].concat();
    let bare = |options: &[&[u8]]| {
        let options = options.iter().filter(|option| option[0] != kind::NOP);
        options.copied().collect::<Vec<_>>().concat()
    };
    let tight = [bare(before), grown, bare(after)].concat();
    let room = Options::ROOM as usize;
    let mut chosen = [padded, tight].into_iter().find(|options| options.len() <= room)?;
    chosen.resize(chosen.len().next_multiple_of(4), kind::NOP);
    Some(chosen)
}
