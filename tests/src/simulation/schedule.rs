//! Virtual time and what is to happen when.

use std::collections::BTreeMap;
use std::time::Duration;

/// Events in the order of their time; those of one moment in the order in which they were planned.
#[derive(Clone, Debug)]
pub struct Schedule<E> {
    now: Duration,
    planned: u64,
    events: BTreeMap<(Duration, u64), E>,
}

// === impl Schedule ===

impl<E> Schedule<E> {
    /// Nothing planned, at time zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { now: Duration::ZERO, planned: 0, events: BTreeMap::new() }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Plans an event; what lies in the past happens now.
    pub fn at(&mut self, time: Duration, event: E) {
        self.planned += 1;
        self.events.insert((time.max(self.now), self.planned), event);
    }

    /// Plans an event some time from now.
    pub fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now + delay, event);
    }

    /// The next event no later than `end`; time moves to it.
    pub fn next(&mut self, end: Duration) -> Option<E> {
        let (&(time, _), _) = self.events.first_key_value()?;
        if time > end {
            return None;
        }
        self.now = time;
        self.events.pop_first().map(|(_, event)| event)
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self::new()
    }
}
