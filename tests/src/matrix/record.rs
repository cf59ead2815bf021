//! Finished runs, one JSON object a line.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell::Cell;

/// A finished run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of which cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// Which of its runs, from 1 on.
    pub run: u32,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
    /// How long all of it took, in milliseconds.
    pub took_ms: u64,
    /// When it ended (Unix seconds).
    pub at_unix: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// From the write, or from the fault's end, to applied on all nodes; nothing where nothing is to be applied.
    AppliedMs(Option<u64>),
    /// What was not as it should be, as a sentence.
    Failed(String),
}

/// All that is in the file: the last line of a run counts.
#[derive(Debug, Default)]
pub struct Records(BTreeMap<(Cell, u32), Record>);

/// The file, to be added to.
#[derive(Debug)]
pub struct Journal(File);

// === impl Record ===

impl Record {
    /// A run that ended now.
    #[must_use]
    pub fn new(cell: Cell, run: u32, end: End, took_ms: u64) -> Self {
        let at_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { cell, run, end, took_ms, at_unix }
    }
}

// === impl Records ===

impl Records {
    /// Reads them; a file that is not there has none. A last line that was cut short by a crash does not count.
    ///
    /// # Errors
    /// When the file cannot be read, or another line is none.
    pub fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut records = Self::default();
        for (index, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(record) => records.add(record),
                Err(_) if index + 1 == text.lines().count() && !text.ends_with('\n') => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("line {} of {}", index + 1, path.display()));
                }
            }
        }
        Ok(records)
    }

    /// Adds one, in place of an earlier one of the same run.
    pub fn add(&mut self, record: Record) {
        self.0.insert((record.cell.clone(), record.run), record);
    }

    /// One run.
    #[must_use]
    pub fn get(&self, cell: &Cell, run: u32) -> Option<&Record> {
        self.0.get(&(cell.clone(), run))
    }

    /// The runs of a cell, in order.
    pub fn of<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = &'a Record> {
        self.0.values().filter(move |record| record.cell == *cell)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.values()
    }
}

// === impl Journal ===

impl Journal {
    /// Opens the file at its end; its folder is made. What a crash left of a line is ended first.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let whole = std::fs::read(path).unwrap_or_default();
        let lines = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        file.set_len(lines as u64).with_context(|| format!("cut {} to whole lines", path.display()))?;
        Ok(Self(file))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_string(record).context("a record is JSON")?;
        line.push('\n');
        self.0.write_all(line.as_bytes()).context("note down a run")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::cell::{Fault, Members};

    fn record(run: u32, end: End) -> Record {
        let cell = Cell { version: "3.6.17".into(), members: Members::Three, fault: Fault::HalfOpen };
        Record { cell, run, end, took_ms: 5000, at_unix: 1_800_000_000 }
    }

    #[test]
    fn lines_are_read_back_and_the_last_of_a_run_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target/runs.jsonl");
        let lines = [
            record(1, End::Failed("node 2 lacks routes/1".into())),
            record(2, End::AppliedMs(Some(120))),
            record(1, End::AppliedMs(None)),
        ];
        let mut journal = Journal::open(&path).unwrap();
        lines.iter().for_each(|line| journal.add(line).unwrap());
        let records = Records::read(&path).unwrap();
        assert_eq!(records.of(&lines[0].cell).collect::<Vec<_>>(), [&lines[2], &lines[1]]);
        assert_eq!(records.get(&lines[0].cell, 3), None);
        let text = std::fs::read_to_string(&path).unwrap();
        let first = r#"{"version":"3.6.17","members":"three","fault":"half_open","run":1,"#;
        assert!(text.starts_with(first), "{text}");
    }

    #[test]
    fn what_a_crash_left_of_a_line_is_not_counted_and_not_built_upon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let (one, two) = (record(1, End::AppliedMs(Some(1))), record(2, End::AppliedMs(Some(2))));
        Journal::open(&path).unwrap().add(&one).unwrap();
        let half = &serde_json::to_string(&two).unwrap()[..40];
        std::fs::write(&path, format!("{}{half}", std::fs::read_to_string(&path).unwrap())).unwrap();
        assert_eq!(Records::read(&path).unwrap().iter().collect::<Vec<_>>(), [&one]);
        Journal::open(&path).unwrap().add(&two).unwrap();
        assert_eq!(Records::read(&path).unwrap().iter().collect::<Vec<_>>(), [&one, &two]);
    }

    #[test]
    fn a_line_that_is_none_is_named_and_a_missing_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        assert_eq!(Records::read(&path).unwrap().iter().count(), 0);
        std::fs::write(&path, "{}\n").unwrap();
        let error = format!("{:#}", Records::read(&path).unwrap_err());
        assert!(error.contains("line 1 of"), "{error}");
    }
}
