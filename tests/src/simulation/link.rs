//! One direction of a connection: it keeps the order, takes time, and can be held up.

use std::time::Duration;

use super::random::Random;

/// When what is sent arrives. What is sent on a cut link never does; its owner asks before it delivers.
#[derive(Clone, Debug)]
pub struct Link {
    low: Duration,
    high: Duration,
    /// Nothing arrives before this: what was sent earlier, or a stall.
    not_before: Duration,
}

// === impl Link ===

impl Link {
    /// A link with a latency between two bounds.
    #[must_use]
    pub const fn new(low: Duration, high: Duration) -> Self {
        Self { low, high, not_before: Duration::ZERO }
    }

    /// When something sent now arrives.
    pub fn arrival(&mut self, now: Duration, random: &mut Random) -> Duration {
        let arrival = (now + random.duration(self.low, self.high)).max(self.not_before);
        self.not_before = arrival;
        arrival
    }

    /// Holds everything up until a time.
    pub fn stall(&mut self, until: Duration) {
        self.not_before = self.not_before.max(until);
    }
}
