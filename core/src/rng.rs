//! Seeded randomness: PCG-XSH-RR 64/32 (M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
//! Algorithms for Random Number Generation", HMC-CS-2014-0905).
//!
//! Every component that draws numbers owns a stream of its own, named by the run's seed and the component's number, so that
//! adding a component does not change what the others draw. It is written here because this crate depends on nothing that
//! could change its sequence under a recorded result.

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    increment: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005; // the paper's 64-bit LCG multiplier

impl Rng {
    /// The stream number `stream` of the run seeded with `seed`.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng { state: 0, increment: (stream << 1) | 1 };
        rng.step();
        rng.state = rng.state.wrapping_add(seed);
        rng.step();
        rng
    }

    #[inline]
    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Uniform over all 32-bit values.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.step();
        ((((old >> 18) ^ old) >> 27) as u32).rotate_right((old >> 59) as u32)
    }

    /// Uniform over all 64-bit values.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        (self.next_u32() as u64) << 32 | self.next_u32() as u64
    }

    /// Uniform in `[0, 1)`, with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..n`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_of_the_reference_implementation() {
        // pcg32-demo of the reference C library: pcg32_srandom(42, 54).
        let mut rng = Rng::new(42, 54);
        let drawn: [u32; 6] = core::array::from_fn(|_| rng.next_u32());
        assert_eq!(drawn, [0xa15c02b7, 0x7b47f409, 0xba1d3330, 0x83d2f293, 0xbfa4784b, 0xcbed606e]);
    }

    #[test]
    fn streams_differ_and_numbers_stay_in_range() {
        let (mut a, mut b) = (Rng::new(1, 1), Rng::new(1, 2));
        assert_ne!(a.next_u64(), b.next_u64());
        for n in [1, 2, 7, 1 << 40] {
            assert!((0..1000).all(|_| a.below(n) < n));
        }
        let mean = (0..10_000).map(|_| a.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
