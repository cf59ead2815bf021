//! A checksummed, append-only record file with a lock, encrypted where keys are given.
//!
//! For what must survive a crash: last known good, the embedded store. It must never know what it stores; a record is
//! bytes. Everything blocks: callers use a thread of their own.
//!
//! The unit that counts is a *group*: records followed by a commit mark. A group whose mark is missing, or anything in
//! which a checksum fails, was never written as far as a reader can tell. So whatever the bytes of a file are, opening
//! it answers a whole prefix of the groups that were written, and says what was cut off and why; it never panics.
//!
//! Three layers, each usable alone:
//! - [`frame`]: the bytes of headers, records and commit marks;
//! - [`Log`]: one file: open and replay, append a group, sync, rewrite, set aside what is not ours;
//! - [`Kept`]: a value kept in a log as the fold of its groups: writes differences, rewrites when garbage outgrows the
//!   live size, heals itself after a full disk, takes the file over from a process that has ended.
//!
//! Beside them [`seal`]: what is written under a key. What is not here: any choice of when to sync.

pub mod aside;
pub mod disk;
pub mod error;
pub mod frame;
pub mod kept;
pub mod lock;
pub mod log;
pub mod scan;
pub mod seal;

pub use error::{Error, Fault};
pub use frame::Format;
pub use kept::{Fold, Kept, Refused};
pub use log::{GroupWriter, Judgement, Log, Opened};
pub use seal::Keys;
