//! What is left to be run, and in which order. Pure.

use super::binaries::{Found, Release};
use super::cell::{Cell, Fault, Members};
use super::record::{End, Records};

/// Runs of one cell in a row, on one stand where the fault allows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// The cell.
    pub cell: Cell,
    /// The release to run it on.
    pub found: Found,
    /// The numbers of the runs.
    pub runs: Vec<u32>,
}

/// The cells that were asked for: every release, then one member before three, fault by fault.
#[must_use]
pub fn cells<'a>(releases: &'a [Release], members: &[Members], faults: &[Fault]) -> Vec<(&'a Release, Cell)> {
    let mut cells = Vec::new();
    for release in releases {
        for &members in members {
            for &fault in faults {
                cells.push((release, Cell { version: release.name(), members, fault }));
            }
        }
    }
    cells
}

/// What is left: the first run of every cell before the others of any. What cannot be run, or makes no sense, is left
/// out. A run that failed counts as done, unless it is to be done `again`.
#[must_use]
pub fn pending(cells: &[(&Release, Cell)], records: &Records, runs: u32, again: bool) -> Vec<Visit> {
    let done = |cell: &Cell, run| {
        let record = records.get(cell, run);
        record.is_some_and(|record| !again || matches!(record.end, End::AppliedMs(_)))
    };
    let rounds = [1..=1, 2..=runs];
    let visits = rounds.into_iter().flat_map(|round| {
        let visit = move |(release, cell): &(&Release, Cell)| {
            let able =
                cell.fault.senseless(cell.members).is_none() && release.lacks(cell.fault.needs()).is_none();
            let found = release.found.clone().filter(|_| able)?;
            let runs: Vec<u32> = round.clone().filter(|run| !done(cell, *run)).collect();
            (!runs.is_empty()).then(|| Visit { cell: cell.clone(), found, runs })
        };
        cells.iter().filter_map(visit)
    });
    visits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Binaries, Version};
    use crate::matrix::record::Record;

    fn release(minor: &str, version: Option<&str>, etcdutl: bool) -> Release {
        let found = version.map(|version| Found {
            version: Version::named(version),
            binaries: Binaries { etcd: "etcd".into(), etcdutl: etcdutl.then(|| "etcdutl".into()) },
        });
        Release { minor: minor.into(), found }
    }

    fn shown(visits: &[Visit]) -> Vec<String> {
        let show = |visit: &Visit| {
            format!("{} {} {} {:?}", visit.cell.version, visit.cell.members, visit.cell.fault, visit.runs)
        };
        visits.iter().map(show).collect()
    }

    #[test]
    fn first_runs_come_first_and_what_is_done_or_cannot_be_is_left_out() {
        let releases = [
            release("3.4", Some("3.4.23"), false),
            release("3.6", Some("3.6.17"), true),
            release("3.7", None, false),
        ];
        let all = cells(
            &releases,
            &[Members::Single, Members::Three],
            &[Fault::Killed, Fault::CutOff, Fault::Bumped],
        );
        let mut records = Records::default();
        let fresh = shown(&pending(&all, &records, 1, false));
        let able = if cfg!(target_os = "linux") { 8 } else { 6 };
        assert_eq!(fresh.len(), able, "{fresh:#?}");
        assert!(!fresh.iter().any(|it| it.starts_with("3.4.23") && it.contains("bumped")), "no etcdutl");
        assert!(!fresh.iter().any(|it| it.contains("single cut-off")), "a single member has no peers");
        assert!(!fresh.iter().any(|it| it.starts_with("3.7")), "not there");

        let cell = Cell { version: "3.6.17".into(), members: Members::Single, fault: Fault::Killed };
        records.add(Record::new(cell.clone(), 1, End::AppliedMs(Some(5)), 9));
        records.add(Record::new(cell, 3, End::Failed("no".into()), 9));
        let only = cells(&releases[1..2], &[Members::Single], &[Fault::Killed, Fault::Paused]);
        assert_eq!(
            shown(&pending(&only, &records, 4, false)),
            ["3.6.17 single paused [1]", "3.6.17 single killed [2, 4]", "3.6.17 single paused [2, 3, 4]"]
        );
        assert_eq!(shown(&pending(&only, &records, 4, true))[1], "3.6.17 single killed [2, 3, 4]");
    }
}
