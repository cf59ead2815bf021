//! What must hold end to end, each with a real etcd and both planes as real processes; one subject a file.
//!
//! One binary for all of them: linking is most of what such a test costs.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

mod atomic;
mod encryption;
mod fallback;
mod generations;
mod killed;
mod main_path;
mod matrix;
mod outage;
mod rejected;
mod restore;
mod second_hop;
mod silenced_watch;
mod unchanged_reload;
