//! The delay before the next try: exponential, capped, jittered.
//!
//! Pure: the caller brings the random number and does the waiting. The delay grows until the caller says that
//! what it tried has been *healthy* for a while ([`Backoff::reset`]); a mere success to connect is no reason to
//! start over, or a peer that accepts and fails at once would be hammered.

use std::time::Duration;

/// Exponential backoff between `initial` and `cap`.
///
/// The n-th delay (from 0) lies evenly between half of and the whole of `min(cap, initial * 2^n)`: never zero, so a
/// crowd that failed together neither returns together nor at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    cap: Duration,
    attempts: u32,
}

// === impl Backoff ===

impl Backoff {
    /// A backoff that starts at `initial` and never exceeds `cap`; a `cap` below `initial` means `initial`.
    #[must_use]
    pub const fn new(initial: Duration, cap: Duration) -> Self {
        let cap = if cap.as_nanos() < initial.as_nanos() { initial } else { cap };
        Self { initial, cap, attempts: 0 }
    }

    /// The next delay, and one attempt more. `random` is a number in `0.0..=1.0`; anything else is brought into
    /// that range.
    pub fn next(&mut self, random: f64) -> Duration {
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        let whole = self.ceiling();
        self.attempts = self.attempts.saturating_add(1);
        whole / 2 + (whole / 2).mul_f64(random)
    }

    /// Starts over from `initial`: to be called when what was tried has proved healthy, and only then.
    pub const fn reset(&mut self) {
        self.attempts = 0;
    }

    /// How many delays were handed out since the start or the last reset.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX);
        self.initial.checked_mul(factor).map_or(self.cap, |delay| delay.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn doubles_up_to_the_cap() {
        let mut backoff = Backoff::new(SECOND, 10 * SECOND);
        let delays: Vec<u64> = (0..6).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn jitter_keeps_between_half_and_whole() {
        let mut low = Backoff::new(SECOND, 10 * SECOND);
        let mut odd = low.clone();
        assert_eq!(low.next(0.0), SECOND / 2);
        assert_eq!(low.next(0.5), SECOND * 3 / 2);
        assert_eq!(odd.next(f64::NAN), SECOND);
        assert_eq!(odd.next(-3.0), SECOND);
    }

    #[test]
    fn only_reset_starts_over_and_a_long_run_does_not_overflow() {
        let mut backoff = Backoff::new(SECOND, 10 * SECOND);
        for _ in 0..100 {
            assert!(backoff.next(1.0) <= 10 * SECOND);
        }
        assert_eq!(backoff.attempts(), 100);
        backoff.reset();
        assert_eq!(backoff.next(1.0), SECOND);
    }

    #[test]
    fn a_cap_below_the_start_is_the_start() {
        assert_eq!(Backoff::new(2 * SECOND, SECOND).next(1.0), 2 * SECOND);
    }
}
