//! Each rule of the tracker, by its number. The rig stands for a shell that does at once what it is asked.

mod opening;
mod rig;
mod watching;

use std::time::Duration;

use bytes::Bytes;
use headwater_model::Revision;

use self::rig::{CLUSTER, MEMBER, Rig, delete, entry, put};
use super::{Action, Blame, Failure, Fault, Header, Input, WatchResponse};
use crate::backend::{Batch, Continuity, KeyEvent, ResumePoint, SourceEvent, Stage};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
