//! The faults, a file for each family: what is done, what must be shown meanwhile, and from when on it is timed.
//!
//! A fault that stands until it is noticed ends as soon as replica or nodes show it. Where a cluster can survive it, the
//! time is that of a write made while it stands; else it counts from the fault's end.

use std::time::Duration;

use anyhow::Result;

use super::cell::{Cell, Fault, Members};
use super::stand::Stand;

pub mod gate;
pub mod history;
pub mod process;
pub mod space;
pub mod way;

/// Plays a fault on a stand that is healthy, and heals it. How long it took until every node had applied the write that
/// counts.
///
/// # Errors
/// What was not as it should be.
///
/// # Panics
/// When etcd itself does not do what it should.
pub async fn play(cell: &Cell, stand: &mut Stand) -> Result<Duration> {
    let three = cell.members == Members::Three;
    match cell.fault {
        Fault::Gate => gate::followed(stand, &cell.version).await,
        Fault::Killed if three => process::one_killed(stand).await,
        Fault::Killed => process::all_killed(stand).await,
        Fault::Paused if three => process::one_paused(stand).await,
        Fault::Paused => process::all_paused(stand).await,
        Fault::Restarted => process::restarted(stand).await,
        Fault::CutOff => way::cut_off(stand).await,
        Fault::Blackholed if three => way::one_blackholed(stand).await,
        Fault::Blackholed => way::all_blackholed(stand).await,
        Fault::HalfOpen => way::half_open(stand).await,
        Fault::Latency => way::latency(stand).await,
        Fault::Compacted => space::compacted(stand).await,
        Fault::Defragmented => space::defragmented(stand).await,
        Fault::NoSpace => space::used_up(stand).await,
        Fault::Restored => history::restored(stand, false).await,
        Fault::Bumped => history::restored(stand, true).await,
        Fault::Wiped if three => history::replaced(stand).await,
        Fault::Wiped => history::wiped(stand).await,
    }
}
