//! What a router remembers of connections, in bounded memory: sets of [`WAYS`] entries, chosen by a hash of the connection.
//!
//! A new connection takes, in its set, a free entry, or that of the oldest connection which never passed its handshake, or that of
//! the one silent for longest. So a flood of SYNs pushes out other SYNs, not connections that are in use.

use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

const WAYS: usize = 8;

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection {
    key: u64,
    /// When a packet of it last passed, in ms; 0 is "free".
    seen: u32,
    /// What the sender of the ACKs announced, if it has: its window scale shift.
    pub scale: Announced,
    /// What the sender of the data announced.
    pub peer_scale: Announced,
    /// Whether something other than a SYN came back.
    pub in_use: bool,
    /// Payload of a full segment: the lesser of both ends' MSS options; 0 before any. Neither sends more than the other takes, and an
    /// end seldom has another link there than back.
    pub mss: u16,
    /// A SYN that came while the connection was in use, until the other end answers it.
    again: Option<Syn>,
    /// How far the handshake has come.
    pub opening: Opening,
    /// When the SYN passed, in us modulo 2^32.
    pub syn_at: u32,
    /// The round trip of the handshake, in us; 0 if it is not known.
    pub rtt: u32,
    /// The window last granted, in bytes; 0 if none.
    pub grant: u32,
    /// When, in us modulo 2^32.
    pub granted_at: u32,
    /// The highest ACK number that passed.
    pub ack: u32,
    /// When its next ACK may pass.
    pub free_at: Time,
}

/// A handshake, as a router sees it: the time from the SYN to the third packet is the whole round trip, whichever end opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opening {
    /// No SYN has passed.
    #[default]
    Unseen,
    /// The SYN has passed, with the data or against them.
    Syn {
        /// With the data.
        onward: bool,
    },
    /// The SYN has passed more than once (Karn), or the handshake is over.
    Past,
}

const LONGEST_RTT: Duration = Duration::from_secs(60);

/// What one end says in its SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syn {
    /// It travels with the data.
    pub onward: bool,
    /// It acknowledges the other end's.
    pub answers: bool,
    /// Its window scale.
    pub scale: Announced,
    /// Its MSS, 536 without the option (RFC 9293 section 3.7.1).
    pub mss: u16,
    /// When it passes, in us modulo 2^32.
    pub at: u32,
}

/// Linux sends no smaller segments, whatever a SYN says (`tcp_min_snd_mss` and headers).
const LEAST_MSS: u16 = 88;

/// What a SYN said of window scaling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Announced {
    /// No SYN was seen.
    #[default]
    Unseen,
    /// A SYN without the option.
    No,
    /// A shift, at most 14.
    Shift(u8),
}

impl Connection {
    /// The shift of the ACKs' window fields; `None` if a SYN was not seen. Both must have announced one (RFC 7323 section 2.2).
    pub fn shift(&self) -> Option<u8> {
        match (self.scale, self.peer_scale) {
            (Announced::Unseen, _) | (_, Announced::Unseen) => None,
            (Announced::Shift(shift), Announced::Shift(_)) => Some(shift),
            _ => Some(0),
        }
    }

    /// A SYN or SYN-ACK passes. A connection that is in use believes none, since anybody can send one: only if the other end answers
    /// it, which it does when the old connection is over, it is a new one.
    pub fn opens(&mut self, syn: Syn) {
        if self.in_use {
            if !syn.answers {
                self.again = Some(syn);
                return;
            }
            let Some(first) = self.again.filter(|first| first.onward != syn.onward) else { return };
            *self = Connection { key: self.key, seen: self.seen, ..Connection::default() };
            self.opens(first);
        }
        *(if syn.onward { &mut self.peer_scale } else { &mut self.scale }) = syn.scale;
        self.mss = if self.mss == 0 { syn.mss } else { self.mss.min(syn.mss) }.max(LEAST_MSS);
        if !syn.answers {
            let first = self.opening == Opening::Unseen;
            self.syn_at = syn.at;
            self.opening = if first { Opening::Syn { onward: syn.onward } } else { Opening::Past };
        }
    }

    /// Something other than a SYN passes.
    #[inline]
    pub fn goes_on(&mut self, now: Time, onward: bool) {
        if self.opening == (Opening::Syn { onward }) {
            self.opening = Opening::Past;
            self.rtt = micros(now).wrapping_sub(self.syn_at).max(1);
        }
    }

    /// The round trip of the handshake, a minute at most.
    pub fn rtt(&self) -> Option<Duration> {
        (self.rtt > 0).then(|| Duration::from_micros(u64::from(self.rtt)).min(LONGEST_RTT))
    }
}

/// The connections.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Box<[Connection]>,
    sets: usize,
}

impl Table {
    /// Room for `connections`, rounded up to a power of two.
    pub fn new(connections: usize) -> Table {
        let sets = connections.div_ceil(WAYS).max(1).next_power_of_two();
        Table { entries: vec![Connection::default(); sets * WAYS].into(), sets }
    }

    /// With room for what `self` has room for, and what `old` knows as far as that suffices.
    #[must_use]
    pub fn with(mut self, old: Table) -> Table {
        if self.entries.len() == old.entries.len() {
            return old;
        }
        for connection in old.entries.iter().filter(|c| c.seen != 0) {
            let place = self.place(connection.key);
            *place = *connection;
        }
        self
    }

    fn set(&mut self, key: u64) -> &mut [Connection] {
        let first = (super::mix(key) >> 40) as usize % self.sets * WAYS;
        &mut self.entries[first..first + WAYS]
    }

    /// The connection with this key, if it is known.
    #[inline]
    pub fn find(&mut self, now: Time, key: u64) -> Option<&mut Connection> {
        let seen = millis(now);
        let found = self.set(key).iter_mut().find(|c| c.key == key && c.seen != 0)?;
        found.seen = seen;
        Some(found)
    }

    /// The connection with this key, a fresh one if it is not known.
    pub fn enter(&mut self, now: Time, key: u64) -> &mut Connection {
        let place = self.place(key);
        if place.key != key || place.seen == 0 {
            *place = Connection { key, ..Connection::default() };
        }
        place.seen = millis(now);
        place
    }

    /// Where the connection with this key is, or is to be: in place of the least of its set.
    fn place(&mut self, key: u64) -> &mut Connection {
        let rank = |c: &Connection| (c.seen != 0, c.in_use, c.seen);
        let set = self.set(key);
        let known = set.iter().position(|c| c.key == key && c.seen != 0);
        let least = || (0..WAYS).min_by_key(|i| rank(&set[*i])).expect("a set has entries");
        let at = known.unwrap_or_else(least);
        &mut set[at]
    }

    /// Forgets a connection.
    pub fn forget(&mut self, key: u64) {
        if let Some(c) = self.set(key).iter_mut().find(|c| c.key == key) {
            *c = Connection::default();
        }
    }
}

/// Microseconds modulo 2^32: 71 minutes.
pub(super) fn micros(now: Time) -> u32 {
    (now.as_nanos() / 1000) as u32
}

fn millis(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_syns_pushes_out_no_connection_in_use() {
        let mut table = Table::new(1024);
        let start = Time::from_millis(1);
        for key in 0..200 {
            table.enter(start, key * 31).in_use = true;
        }
        for key in 0..1_000_000u64 {
            table.enter(Time::from_millis(2 + key / 1000), 1 << 40 | key);
        }
        let left = (0..200).filter(|key| table.find(start, key * 31).is_some()).count();
        assert_eq!(left, 200, "1024 entries for 200 connections, in sets of 8");
    }

    #[test]
    fn among_connections_in_use_the_one_silent_for_longest_goes() {
        let mut table = Table::new(8); // one set
        for key in 1..=9u64 {
            table.enter(Time::from_millis(key), key).in_use = true;
            if key == 8 {
                table.find(Time::from_millis(8), 1); // the first speaks again
            }
        }
        let known = |k: u64, t: &mut Table| t.find(Time::from_millis(9), k).is_some();
        assert_eq!([1, 2, 3, 9].map(|k| known(k, &mut table)), [true, false, true, true]);
        table.forget(3);
        assert!(!known(3, &mut table));
    }

    #[test]
    fn a_shift_counts_only_if_both_announced_one_and_both_syns_were_seen() {
        use Announced::{No, Shift, Unseen};
        let shift = |scale, peer_scale| Connection { scale, peer_scale, ..Connection::default() }.shift();
        assert_eq!(shift(Shift(7), Shift(2)), Some(7));
        assert_eq!((shift(Shift(7), No), shift(No, Shift(7)), shift(No, No)), (Some(0), Some(0), Some(0)));
        assert_eq!((shift(Shift(7), Unseen), shift(Unseen, Shift(7))), (None, None));
    }
}
