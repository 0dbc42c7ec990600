//! A series at uneven times, resampled to even ones by straight lines between its values, in constant memory.

use crate::time::{Time, nanos};
use alloc::collections::VecDeque;
use core::time::Duration;

/// The last values of a series, one per step.
#[derive(Clone, Debug)]
pub struct Series {
    step: u64,
    room: usize,
    /// Newest at the back.
    even: VecDeque<f64>,
    /// When the newest of them was.
    at: u64,
    /// The last value given.
    last: Option<(u64, f64)>,
}

impl Series {
    /// An empty one that keeps `room` values, one per `step`; at least one, and at least a nanosecond apart.
    pub fn new(step: Duration, room: usize) -> Series {
        let room = room.max(1);
        Series { step: nanos(step).max(1), room, even: VecDeque::with_capacity(room), at: 0, last: None }
    }

    /// Takes the value at `now` and tells `each` the values at even times that are known since, oldest first. After a gap of
    /// more steps than are kept it starts anew: nothing is known of what happened meanwhile.
    pub fn push(&mut self, now: Time, value: f64, mut each: impl FnMut(&Series, f64)) {
        let now = now.as_nanos();
        let before = self.last.replace((now, value));
        let Some((t, v)) = before.filter(|_| now.saturating_sub(self.at) / self.step <= self.room as u64)
        else {
            self.even.clear();
            self.keep(now, value);
            return;
        };
        while now - self.at >= self.step {
            let at = self.at + self.step;
            // Between t and now, since every even time up to t has been known before.
            let part = if now > t { (at - t) as f64 / (now - t) as f64 } else { 1.0 };
            let even = v + part * (value - v);
            each(self, even);
            self.keep(at, even);
        }
    }

    fn keep(&mut self, at: u64, value: f64) {
        if self.even.len() == self.room {
            self.even.pop_front();
        }
        self.even.push_back(value);
        self.at = at;
    }

    /// How far values are apart.
    pub fn step(&self) -> Duration {
        Duration::from_nanos(self.step)
    }

    /// The values at even times, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = f64> + '_ {
        self.even.iter().rev().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.even.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.even.is_empty()
    }

    /// How long the last value given is after the newest at an even time.
    pub fn lag(&self) -> Duration {
        Duration::from_nanos(self.last.map_or(0, |(t, _)| t.saturating_sub(self.at)))
    }
}
