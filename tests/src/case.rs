//! The two lengths of a case: the short form of every test run, and the full one of `make cases`.

use std::sync::OnceLock;

/// Whether the cases run in full: `HEADWATER_FULL_CASES=1`.
#[must_use]
pub fn is_full() -> bool {
    static FULL: OnceLock<bool> = OnceLock::new();
    *FULL.get_or_init(|| std::env::var_os("HEADWATER_FULL_CASES").is_some_and(|set| set == "1"))
}

/// What a case takes in its short form, and in full.
pub fn either<T>(short: T, full: T) -> T {
    if is_full() { full } else { short }
}

/// A number that the environment may set, for forms that last hours.
///
/// # Panics
/// When the variable holds something else.
#[must_use]
pub fn number(variable: &str, otherwise: u64) -> u64 {
    let Some(text) = std::env::var_os(variable) else { return otherwise };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{variable}={} is no number", text.display()))
}

/// The times a replica has when nobody sets any, over the short ones of the tests: in full, bounds are the product's.
#[must_use]
pub fn times() -> &'static [&'static str] {
    const DEFAULTS: &[&str] = &[
        "etcd.progress_interval=5s",
        "etcd.liveness_timeout=15s",
        "etcd.catch_up_timeout=60s",
        "etcd.connect_timeout=5s",
        "etcd.request_timeout=5s",
    ];
    either(&[], DEFAULTS)
}
