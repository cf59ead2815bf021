//! When receivers had the values: over all deliveries, and at the last receiver of each.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Shared by all receivers of a process.
#[derive(Debug)]
pub struct Tally {
    receivers: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    received: Histogram<u64>,
    /// By the moment the put began: how many have it, and when the last one had it.
    updates: BTreeMap<u64, (u64, u64)>,
}

/// The figures, in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// How many deliveries there were.
    pub deliveries: u64,
    /// How many values every receiver had; of the others a receiver had a newer one of the key instead.
    pub complete: u64,
    /// From the start of the put to one receiver.
    pub received_p50_ms: f64,
    /// See [`Figures::received_p50_ms`].
    pub received_p95_ms: f64,
    /// See [`Figures::received_p50_ms`].
    pub received_p99_ms: f64,
    /// From the start of the put to the last receiver.
    pub all_p50_ms: f64,
    /// See [`Figures::all_p50_ms`].
    pub all_p99_ms: f64,
}

// === impl Tally ===

impl Tally {
    /// For so many receivers.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(receivers: u64) -> Result<Self> {
        let received = histogram()?;
        Ok(Self { receivers, inner: Mutex::new(Inner { received, updates: BTreeMap::new() }) })
    }

    /// A receiver has the values whose puts began at these moments; 0 is none.
    pub fn received(&self, began: impl IntoIterator<Item = u64>, now: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for began in began.into_iter().filter(|began| *began > 0) {
            inner.received.saturating_record(now.saturating_sub(began));
            let (count, last) = inner.updates.entry(began).or_default();
            *count += 1;
            *last = now.max(*last);
        }
    }

    /// The figures so far.
    ///
    /// # Errors
    /// When nothing was received.
    pub fn figures(&self) -> Result<Figures> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = histogram()?;
        for (began, (_, last)) in inner.updates.iter().filter(|(_, (count, _))| *count == self.receivers) {
            all.saturating_record(last.saturating_sub(*began));
        }
        ensure!(!all.is_empty(), "no value reached every receiver");
        Ok(Figures {
            deliveries: inner.received.len(),
            complete: all.len(),
            received_p50_ms: milliseconds(&inner.received, 0.50),
            received_p95_ms: milliseconds(&inner.received, 0.95),
            received_p99_ms: milliseconds(&inner.received, 0.99),
            all_p50_ms: milliseconds(&all, 0.50),
            all_p99_ms: milliseconds(&all, 0.99),
        })
    }
}

/// Nanoseconds up to an hour, to three digits; what took longer counts as an hour.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).context("a histogram")
}

/// A quantile of nanoseconds, in milliseconds with three places.
#[must_use]
pub fn milliseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    (histogram.value_at_quantile(quantile) as f64 / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_receiver_counts_and_a_value_that_one_missed_does_not() {
        let tally = Tally::new(2).unwrap();
        assert!(tally.figures().is_err());
        tally.received([1_000_000, 0], 3_000_000);
        tally.received([1_000_000, 2_000_000], 9_000_000);
        let figures = tally.figures().unwrap();
        assert_eq!((figures.deliveries, figures.complete), (3, 1));
        assert!((figures.all_p50_ms - 8.0).abs() < 0.01, "{figures:?}");
        assert!((figures.received_p50_ms - 7.0).abs() < 0.01, "{figures:?}");
    }
}
