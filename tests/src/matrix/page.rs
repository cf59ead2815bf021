//! `docs/etcd-matrix.md`, from the runs that are noted down. Pure.

use std::fmt::Write;

use clap::ValueEnum;

use super::binaries::Release;
use super::cell::{Cell, Fault, Members};
use super::record::{End, Record, Records};

/// Characters of a failure's sentence.
const SENTENCE: usize = 240;

/// The page about these cells, each of which is to have so many runs.
#[must_use]
pub fn page(cells: &[(&Release, Cell)], records: &Records, runs: u32) -> String {
    let mut reasons = Vec::new();
    let tables: Vec<String> = Members::value_variants()
        .iter()
        .filter(|members| cells.iter().any(|(_, cell)| cell.members == **members))
        .map(|members| table(*members, cells, records, runs, &mut reasons))
        .collect();
    let mut page = format!("{}\n{}\n", head(cells, records, runs), tables.join("\n"));
    for (index, reason) in reasons.iter().enumerate() {
        let _ = writeln!(page, "({}) {reason}.\n", index + 1);
    }
    page.push_str("## What each fault is\n\n| fault | what is done, and what must be shown meanwhile |\n| --- | --- |\n");
    for fault in
        Fault::value_variants().iter().filter(|fault| cells.iter().any(|(_, it)| it.fault == **fault))
    {
        let _ = writeln!(page, "| {} | {} |", fault.words(), told(*fault));
    }
    page.push_str("\n## Failures\n\n");
    let failures: Vec<String> =
        cells.iter().flat_map(|(_, cell)| records.of(cell)).filter_map(failure).collect();
    if failures.is_empty() {
        page.push_str("None.\n");
    }
    failures.iter().for_each(|line| page.push_str(line));
    page
}

fn head(cells: &[(&Release, Cell)], records: &Records, runs: u32) -> String {
    let counted = cells.iter().flat_map(|(_, cell)| records.of(cell));
    let (finished, newest) = counted.fold((0, 0), |(count, at), it| (count + 1, at.max(it.at_unix)));
    let date = if newest == 0 { "never".to_owned() } else { date(newest) };
    format!(
        "# etcd matrix\n\n\
         Written by `make test-etcd-matrix`; {finished} runs, the newest of {date}. Do not edit it: change the run.\n\n\
         Each run is a real etcd, a replica, two nodes and a writer that never stops, all of them processes of their\n\
         own on one machine, and one fault. After it every node must hold exactly what etcd holds (keys, revisions,\n\
         values, one digest with the replica), replica and nodes must say that all is well, nothing may be counted as a\n\
         divergence, and no history may be taken for another one. Silence counts as death after 2 s here; the default\n\
         is 15 s.\n\n\
         A field: runs that passed of those that were run (each is to be run {runs} times), then the median and the\n\
         longest time in seconds from the write, or from the fault's end if that was later, until both nodes had\n\
         applied it. With three members the write is made while the member is lost, except in the restart, the\n\
         replacement, the restores and NOSPACE; with one it can only count from the end.\n"
    )
}

fn table(
    members: Members,
    cells: &[(&Release, Cell)],
    records: &Records,
    runs: u32,
    reasons: &mut Vec<String>,
) -> String {
    let of_members = || cells.iter().filter(move |(_, cell)| cell.members == members);
    let mut releases: Vec<&Release> = Vec::new();
    for (release, _) in of_members() {
        if !releases.contains(release) {
            releases.push(release);
        }
    }
    let title = match members {
        Members::Single => "## A single member",
        Members::Three => "## Three members",
    };
    let names: Vec<String> = releases.iter().map(|release| column(release)).collect();
    let mut table = format!("{title}\n\n| fault | {} |\n|", names.join(" | "));
    (0..=releases.len()).for_each(|_| table.push_str(" --- |"));
    table.push('\n');
    for fault in Fault::value_variants() {
        let row: Vec<String> = of_members()
            .filter(|(_, cell)| cell.fault == *fault)
            .map(|(release, cell)| field(release, cell, records, runs, reasons))
            .collect();
        if !row.is_empty() {
            let _ = writeln!(table, "| {} | {} |", fault.words(), row.join(" | "));
        }
    }
    table
}

fn column(release: &Release) -> String {
    match &release.found {
        Some(found) if !found.version.is_dependable() => format!("{}, unsafe, overridden", found.version),
        _ => release.name(),
    }
}

fn field(release: &Release, cell: &Cell, records: &Records, runs: u32, reasons: &mut Vec<String>) -> String {
    if cell.fault.senseless(cell.members).is_some() {
        return "not applicable".to_owned();
    }
    let done: Vec<&Record> = records.of(cell).collect();
    if done.is_empty() {
        let Some(reason) = release.lacks(cell.fault.needs()) else { return "not run yet".to_owned() };
        let known = reasons.iter().position(|it| *it == reason).unwrap_or_else(|| {
            reasons.push(reason);
            reasons.len() - 1
        });
        return format!("not run ({})", known + 1);
    }
    let passed = done.iter().filter(|record| matches!(record.end, End::AppliedMs(_))).count();
    let mut times: Vec<u64> = done.iter().filter_map(|record| applied(record)).collect();
    times.sort_unstable();
    let mut field = format!("{passed}/{}", done.len());
    if passed < done.len() {
        field = format!("**{field} FAILED**");
    } else if (done.len() as u64) < u64::from(runs) {
        field.push_str(" so far");
    }
    match times.as_slice() {
        [] if passed == done.len() => field.push_str(", refused"),
        [] => {}
        times => {
            let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
            let (median, most) = (times[(times.len() - 1) / 2], times[times.len() - 1]);
            let _ = write!(field, ", {} / {}", seconds(median), seconds(most));
        }
    }
    field
}

fn applied(record: &Record) -> Option<u64> {
    match record.end {
        End::AppliedMs(ms) => ms,
        End::Failed(_) => None,
    }
}

/// The sentence of a failure, up to where it shows a state in full: that is for the log, and names folders.
fn failure(record: &Record) -> Option<String> {
    let End::Failed(why) = &record.end else { return None };
    let words = why.split(['{', '\n']).next().unwrap_or_default();
    let sentence: String = words.trim_end_matches([' ', ':', ';', '"']).chars().take(SENTENCE).collect();
    let Cell { version, members, fault } = &record.cell;
    Some(format!("- {version}, {members}, {}, run {}: {sentence}\n", fault.words(), record.run))
}

const fn told(fault: Fault) -> &'static str {
    match fault {
        Fault::Gate => {
            "No fault. A release to rely on is followed without a note; an unsafe one is refused, with its name and the bug."
        }
        Fault::Killed => {
            "kill -9 of the member that is followed; a single one is started again once status says stale."
        }
        Fault::Paused => "SIGSTOP of it, until another is followed or status says stale; then SIGCONT.",
        Fault::Restarted => "SIGTERM and a start on the same data; of three, one after the other.",
        Fault::CutOff => {
            "The member that is followed loses its peers, whose traffic goes through proxies; we reach it on."
        }
        Fault::Blackholed => {
            "Nothing passes between replica and member, nothing is closed, until another is followed or status says stale."
        }
        Fault::HalfOpen => {
            "All open connections pass nothing for good and stay open; new ones pass. Nobody heals it."
        }
        Fault::Latency => "150 ms more in each direction: no connection may be given up for it.",
        Fault::Compacted => {
            "Compaction to the newest revision 12 times, connections cut in between, once kept cut beyond a compaction."
        }
        Fault::Defragmented => {
            "8 MB written, deleted and compacted away; each member is defragmented while values are written."
        }
        Fault::NoSpace => {
            "The quota is used up: writes are refused, deletions still reach every node, status stays well; then disarmed."
        }
        Fault::Restored => {
            "All members restored from a snapshot that lacks most resources: held, nodes unchanged, approved, followed."
        }
        Fault::Bumped => "The same with `--bump-revision --mark-compacted`, which looks like a compaction.",
        Fault::Wiped => {
            "A single member starts empty: held, approved, followed. Of three, the followed one is removed and added empty."
        }
    }
}

/// The day of a Unix time, in UTC, as `2026-01-31`: days counted in eras of 400 years that begin on March 1st.
fn date(unix: u64) -> String {
    let days = unix / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Binaries, Version};
    use crate::matrix::binaries::Found;
    use crate::matrix::plan::cells;

    fn release(minor: &str, version: Option<&str>, etcdutl: bool) -> Release {
        let found = version.map(|version| Found {
            version: Version::named(version),
            binaries: Binaries { etcd: "etcd".into(), etcdutl: etcdutl.then(|| "etcdutl".into()) },
        });
        Release { minor: minor.into(), found }
    }

    fn record(version: &str, members: Members, fault: Fault, run: u32, end: End) -> Record {
        let cell = Cell { version: version.into(), members, fault };
        Record { cell, run, end, took_ms: 1, at_unix: 1_772_323_200 + u64::from(run) }
    }

    fn rows(page: &str, start: &str) -> Vec<String> {
        page.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_of_field_is_written() {
        let releases = [
            release("3.4", Some("3.4.23"), false),
            release("3.6", Some("3.6.17"), true),
            release("3.7", None, false),
        ];
        let faults = [Fault::Gate, Fault::Killed, Fault::CutOff, Fault::Bumped];
        let all = cells(&releases, &[Members::Single, Members::Three], &faults);
        let mut records = Records::default();
        for run in 1..=5 {
            records.add(record("3.4.23", Members::Single, Fault::Gate, run, End::AppliedMs(None)));
            let ms = [900, 120, 4310, 205, 10][run as usize - 1];
            records.add(record("3.6.17", Members::Single, Fault::Killed, run, End::AppliedMs(Some(ms))));
        }
        records.add(record("3.6.17", Members::Three, Fault::Killed, 1, End::AppliedMs(Some(70))));
        let why = "not within 30s: node 2 holds it; was seen last: {\"path\":\"/tmp/x\"}\nmore";
        records.add(record("3.6.17", Members::Three, Fault::CutOff, 1, End::AppliedMs(Some(1000))));
        records.add(record("3.6.17", Members::Three, Fault::CutOff, 2, End::Failed(why.into())));
        let page = page(&all, &records, 5);
        assert_eq!(rows(&page, "| fault | 3"), ["| fault | 3.4.23, unsafe, overridden | 3.6.17 | 3.7 |"; 2]);
        assert_eq!(
            rows(&page, "| none"),
            [
                "| none (version gate) | 5/5, refused | not run yet | not run (1) |",
                "| none (version gate) | not run yet | not run yet | not run (1) |",
                "| none (version gate) | No fault. A release to rely on is followed without a note; an unsafe one is refused, \
             with its name and the bug. |",
            ]
        );
        assert_eq!(
            rows(&page, "| kill")[..2],
            [
                "| kill -9 | not run yet | 5/5, 0.205 / 4.310 | not run (1) |",
                "| kill -9 | not run yet | 1/1 so far, 0.070 / 0.070 | not run (1) |",
            ]
        );
        let cut =
            "| member cut off from its peers | not run yet | **1/2 FAILED**, 1.000 / 1.000 | not run (1) |";
        assert_eq!(rows(&page, "| member cut")[1], cut);
        assert_eq!(
            rows(&page, "| member cut")[0],
            "| member cut off from its peers | not applicable | not applicable | not applicable |"
        );
        assert!(
            rows(&page, "| snapshot restore, bumped")[0]
                .contains("| not run (2) | not run yet | not run (1) |")
        );
        assert_eq!(rows(&page, "(2)"), ["(2) etcd 3.4.23 came without etcdutl, which restores snapshots."]);
        let failure = "- 3.6.17, three, member cut off from its peers, run 2: not within 30s: node 2 holds it; was seen last";
        assert_eq!(rows(&page, "- "), [failure]);
        assert!(page.contains("13 runs, the newest of 2026-03-01"), "{page}");
        assert!(!page.contains("/tmp"), "{page}");
    }

    #[test]
    fn days_are_counted() {
        for (unix, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_798_761_599, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(unix), day);
        }
    }
}
