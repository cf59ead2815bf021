//! The wait before another try, with jitter from a seeded counter so that a run can be repeated.

use std::time::Duration;

/// Grows with each round of failures over all members, until a valid frame resets it.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    members: u32,
    failures: u32,
    seed: u64,
    drawn: u64,
}

// === impl Backoff ===

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration, members: u32, seed: u64) -> Self {
        Self { min, max, members: members.max(1), failures: 0, seed, drawn: 0 }
    }

    /// W25: reset only by a valid progress or event. A created response proves nothing.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// W25: per member, not per process: trying each of the others once costs the shortest wait only.
    pub(super) fn next(&mut self) -> Duration {
        let rounds = self.failures / self.members;
        self.failures = self.failures.saturating_add(1);
        let full = self.min.saturating_mul(2_u32.saturating_pow(rounds)).min(self.max);
        // Half fixed, half drawn: never at once, never in step with another replica.
        full.mul_f64(0.5 + 0.5 * self.draw())
    }

    /// A number in [0, 1) by splitmix64 over the seed and a counter.
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        let mut z = self.seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // 53 bits are what an f64 holds exactly.
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(15);

    #[test]
    fn w25_the_wait_grows_by_rounds_over_all_members_and_is_bounded() {
        let mut backoff = Backoff::new(MIN, MAX, 3, 7);
        for _ in 0..3 {
            assert!((MIN / 2..=MIN).contains(&backoff.next()));
        }
        assert!((MIN..=MIN * 2).contains(&backoff.next()));
        for _ in 0..200 {
            backoff.next();
        }
        assert!((MAX / 2..=MAX).contains(&backoff.next()));
        backoff.reset();
        assert!(backoff.next() <= MIN);
    }

    #[test]
    fn w25_seeds_draw_differently_and_repeatably() {
        let draw = |seed| -> Vec<_> {
            let mut backoff = Backoff::new(MIN, MAX, 1, seed);
            (0..8).map(|_| backoff.next()).collect()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
