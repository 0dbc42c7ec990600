//! Which packets an impairment strikes: each with a probability of its own (Bernoulli), or exactly those on a list, counted
//! from 1 in order of arrival. What happens to them is the business of `loss`, `reorder` and their like.

use crate::registry::{Kind, Parameter, Settings, Unfit, within};
use crate::rng::Rng;
use alloc::vec::Vec;

/// The parameters [`Chosen::new`] reads; `probability` and `packets` say what it means to be struck.
pub const fn parameters(probability: &'static str, packets: &'static str) -> [Parameter; 2] {
    [
        Parameter { name: "probability", kind: Kind::Ratio, default: "0", meaning: probability },
        Parameter { name: "packets", kind: Kind::List, default: "[]", meaning: packets },
    ]
}

/// Why a packet was struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It is on the list.
    Listed,
    /// The dice said so.
    Random,
}

/// Strikes some of the packets that arrive.
pub struct Chosen {
    probability: f64,
    /// In order, each once.
    packets: Vec<u64>,
    /// How many of them have come.
    listed: usize,
    arrived: u64,
    rng: Rng,
}

impl Chosen {
    /// Reads `probability` and `packets`.
    pub fn new(settings: &Settings, rng: Rng) -> Result<Self, Unfit> {
        let mut packets = settings.list("packets").to_vec();
        packets.sort_unstable();
        packets.dedup();
        if packets.first() == Some(&0) {
            return Err(Unfit::new("packets", "packets are counted from 1: there is no packet 0"));
        }
        let probability = within(settings, "probability", 0.0, 1.0)?;
        Ok(Chosen { probability, packets, listed: 0, arrived: 0, rng })
    }

    /// Whether the packet that arrives now is struck.
    pub fn strikes(&mut self) -> Option<Cause> {
        self.arrived += 1;
        if self.packets.get(self.listed) == Some(&self.arrived) {
            self.listed += 1;
            return Some(Cause::Listed);
        }
        (self.probability > 0.0 && self.rng.chance(self.probability)).then_some(Cause::Random)
    }
}
