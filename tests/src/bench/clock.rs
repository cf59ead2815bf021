//! The clock that all processes of a benchmark share: the machine's monotonic one.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started, the same in every process.
#[must_use]
pub fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
