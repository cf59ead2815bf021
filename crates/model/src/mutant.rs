//! Faults planted on purpose, to prove that the simulation finds them.
//!
//! In an ordinary build [`planted`] is the constant `false` and every branch behind it is gone. Built with
//! `--cfg headwater_mutants`, one mutant can be chosen by name at run time (`make mutants` does so for each).

/// The names of all mutants; `make mutants` runs each, and fails when the simulation does not notice one.
pub const NAMES: &[&str] = &[
    "advance-on-timeout",
    "progress-before-created",
    "tombstone-not-kept-on-reload",
    "changed-at-is-mod-revision",
    "progress-carries-head",
    "progress-judged-before-apply",
    "guard-at-replica-only",
    "guard-off-for-reloaded",
    "late-fallback-used",
    "node-lowers-generation",
    "durable-acked-before-sync",
    "wait-ignores-rejects",
    "header-certifies",
    "created-certifies",
    "parts-delivered-one-by-one",
    "silence-is-idleness",
    "resumed-at-the-compact-revision",
    "rewind-not-looked-for",
    "content-proof-not-judged",
    "watch-from-the-head",
    "load-installed-after-page-one",
    "events-during-a-load-lost",
    "came-and-went-is-nothing",
    "absent-key-not-buried",
    "unread-base-taken",
    "unproven-is-a-step",
    "degraded-replica-changes-nodes",
    "approval-for-any-jump",
    "denied-claim-taken-as-it-is",
    "denial-overheard",
];

#[cfg(headwater_mutants)]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Chooses the mutant of this process. Called once, before anything else runs; a second call changes nothing.
///
/// # Errors
/// Gives the name back when no mutant is called so.
#[cfg(headwater_mutants)]
pub fn choose(name: &str) -> Result<(), String> {
    if !NAMES.contains(&name) {
        return Err(name.to_owned());
    }
    let _ = CHOSEN.set(name.to_owned());
    Ok(())
}

/// Whether the mutant `name` is planted in this process.
#[cfg(headwater_mutants)]
#[must_use]
pub fn planted(name: &str) -> bool {
    debug_assert!(NAMES.contains(&name), "a mutant that make mutants would never run: {name}");
    CHOSEN.get().is_some_and(|chosen| chosen == name)
}

/// Whether the mutant `name` is planted in this process: never, in a build without mutants.
#[cfg(not(headwater_mutants))]
#[inline(always)]
#[must_use]
pub const fn planted(_name: &str) -> bool {
    false
}
