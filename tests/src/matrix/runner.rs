//! Runs what is left, notes each run down, and keeps the page up to date.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use futures_util::{FutureExt, StreamExt, stream};

use super::binaries::{Found, Release, folder};
use super::cell::{Cell, Fault};
use super::faults::{gate, play};
use super::options::Arguments;
use super::page;
use super::plan::{Visit, cells, pending};
use super::record::{End, Journal, Record, Records};
use super::stand::Stand;
use crate::process::binary;

/// What all cells at work share.
struct Notes<'a> {
    records: Records,
    journal: Journal,
    all: &'a [(&'a Release, Cell)],
    arguments: &'a Arguments,
    finished: usize,
    total: usize,
}

/// Runs what the arguments ask for, on the releases of [`folder`]. Whether no run of the cells asked for has failed.
///
/// # Errors
/// When the file of runs or the page cannot be read or written. A run that fails is noted down and is no error.
pub async fn run(arguments: &Arguments) -> Result<bool> {
    let find = |minor: &String| Release::find(&folder(), minor);
    run_on(&arguments.versions.iter().map(find).collect::<Vec<_>>(), arguments).await
}

/// As [`run`], on these releases.
///
/// # Errors
/// As [`run`].
pub async fn run_on(releases: &[Release], arguments: &Arguments) -> Result<bool> {
    let all = cells(releases, &arguments.members, &arguments.faults);
    let records = Records::read(&arguments.state)?;
    let visits = pending(&all, &records, arguments.runs, arguments.again);
    let total = visits.iter().map(|visit| visit.runs.len()).sum();
    let journal = Journal::open(&arguments.state)?;
    let notes = Mutex::new(Notes { records, journal, all: &all, arguments, finished: 0, total });
    if !arguments.dry_run && total > 0 {
        // Builds them, if need be, before anything is timed or waited for.
        let _ = binary("headwater");
    }
    if arguments.dry_run {
        visits.iter().for_each(|visit| println!("{} runs {:?}", visit.cell, visit.runs));
    } else {
        let visiting = visits.iter().map(|visit| self::visit(visit, &notes));
        let mut visiting = stream::iter(visiting).buffer_unordered(usize::from(arguments.jobs));
        while let Some(end) = visiting.next().await {
            end?;
        }
    }
    let notes = notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    notes.write_page()?;
    let failed = |(_, cell): &(&Release, Cell)| {
        notes.records.of(cell).any(|record| matches!(record.end, End::Failed(_)))
    };
    Ok(!all.iter().any(failed))
}

/// The runs of a visit, on one stand as long as none fails.
async fn visit(visit: &Visit, notes: &Mutex<Notes<'_>>) -> Result<()> {
    let mut stand = None;
    for &run in &visit.runs {
        let began = Instant::now();
        let played = AssertUnwindSafe(played(&visit.cell, &visit.found, &mut stand)).catch_unwind().await;
        let end = match played {
            Ok(Ok(applied_ms)) => End::AppliedMs(applied_ms),
            Ok(Err(error)) => End::Failed(format!("{error:#}")),
            Err(panic) => End::Failed(said(&*panic)),
        };
        if matches!(end, End::Failed(_))
            && let Some(stand) = stand.take()
        {
            tell(&stand);
        }
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let record = Record::new(visit.cell.clone(), run, end, took_ms);
        notes.lock().unwrap_or_else(PoisonError::into_inner).add(record)?;
    }
    Ok(())
}

/// One run.
async fn played(cell: &Cell, found: &Found, stand: &mut Option<Stand>) -> Result<Option<u64>> {
    if cell.fault == Fault::Gate && !found.version.is_dependable() {
        return gate::refused(cell, found).await.map(|()| None);
    }
    let stand = match stand {
        Some(stand) => stand,
        None => stand.insert(Stand::start(cell, found).await?),
    };
    let took = play(cell, stand).await?;
    stand.healthy().await.context("after the fault")?;
    stand.equal().await.context("after the fault")?;
    Ok(Some(u64::try_from(took.as_millis())?))
}

/// The last words of all that ran, to standard error.
fn tell(stand: &Stand) {
    let members = stand.etcd.members().iter().map(|member| ("etcd", &member.process));
    let planes = stand.nodes.iter().map(|node| ("node", &node.process));
    for (name, process) in members.chain([("replica", &stand.replica.process)]).chain(planes) {
        let lines = process.lines();
        eprintln!("--- last lines of {name} {} ---", process.id());
        lines.iter().skip(lines.len().saturating_sub(40)).for_each(|line| eprintln!("{line}"));
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

// === impl Notes ===

impl Notes<'_> {
    fn add(&mut self, record: Record) -> Result<()> {
        self.finished += 1;
        let end = match &record.end {
            End::AppliedMs(Some(ms)) => format!("applied after {ms} ms"),
            End::AppliedMs(None) => "as it should be".to_owned(),
            End::Failed(why) => format!("FAILED: {why}"),
        };
        let seconds = record.took_ms / 1000;
        println!(
            "[{}/{}] {} run {}: {end} ({seconds} s)",
            self.finished, self.total, record.cell, record.run
        );
        self.journal.add(&record)?;
        self.records.add(record);
        self.write_page()
    }

    fn write_page(&self) -> Result<()> {
        let Some(path) = &self.arguments.write else { return Ok(()) };
        let text = page::page(self.all, &self.records, self.arguments.runs);
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }
}
