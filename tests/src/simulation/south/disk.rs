//! A node's file: the newest state is written after a while, then synced, and only then called durable.
//!
//! Every state handed over has a number, so that what a restart finds can be compared with what was promised.

use std::time::Duration;

use headwater_data_plane::sync::last_known_good::Group;
use headwater_model::Version;

use crate::simulation::random::Random;

/// How many numbers are remembered; what was acknowledged lies among the newest.
const REMEMBERED: usize = 512;

/// A state with its number.
type Numbered = (u64, Group);

/// The file.
#[derive(Clone, Debug)]
pub struct Disk {
    asked: u64,
    numbers: Vec<(u64, Version)>,
    newest: Option<Numbered>,
    writing: Option<Numbered>,
    synced: Option<Numbered>,
    busy: bool,
    /// The number of the newest state whose durability was promised.
    acked: u64,
    /// Another process holds the file: nothing is written.
    pub locked: bool,
    /// Writes take this long until then.
    pub slow: (Duration, Duration),
    pace: Duration,
}

// === impl Disk ===

impl Disk {
    /// An empty file on a device of a random pace.
    pub fn new(random: &mut Random) -> Self {
        Self {
            asked: 0,
            numbers: Vec::new(),
            newest: None,
            writing: None,
            synced: None,
            busy: false,
            acked: 0,
            locked: false,
            slow: Default::default(),
            pace: Duration::from_millis(*random.pick(&[2, 40, 400])),
        }
    }

    /// The same file as a second process finds it: it reads, and writes nothing.
    pub fn borrowed(&self) -> Self {
        let mut disk = self.clone();
        (disk.newest, disk.writing, disk.locked, disk.busy) = (None, None, true, false);
        disk
    }

    /// Hands a state over; states that were not begun are skipped. `true` when the device was idle.
    pub fn keep(&mut self, group: Group) -> bool {
        self.asked += 1;
        self.numbers.push((self.asked, group.version.clone()));
        if self.numbers.len() > REMEMBERED {
            self.numbers.remove(0);
        }
        self.newest = Some((self.asked, group));
        !self.locked && !std::mem::replace(&mut self.busy, true)
    }

    /// How long a write takes.
    pub fn takes(&self, now: Duration, random: &mut Random) -> Duration {
        let pace = if now < self.slow.0 { self.slow.1 } else { self.pace };
        random.duration(pace / 10, pace)
    }

    /// The newest state is written, and not synced yet.
    pub fn write(&mut self) {
        self.writing = self.newest.take().or_else(|| self.writing.take());
    }

    /// What was written is synced: durable from now on. Gives its version, and whether more is waiting.
    pub fn sync(&mut self) -> (Option<Version>, bool) {
        if let Some(synced) = self.writing.take() {
            self.synced = Some(synced);
        }
        self.busy = self.newest.is_some();
        (self.synced.as_ref().map(|(_, group)| group.version.clone()), self.busy)
    }

    /// Everything is written: an orderly end.
    pub fn close(&mut self) {
        if !self.locked {
            self.write();
            self.sync();
        }
        self.end();
    }

    /// A crash: what was not synced is there or not.
    pub fn crash(&mut self, random: &mut Random) {
        if random.one_in(2)
            && let Some(written) = self.writing.take()
        {
            self.synced = Some(written);
        }
        self.end();
    }

    fn end(&mut self) {
        (self.newest, self.writing, self.busy) = (None, None, false);
    }

    /// What is found at a start.
    pub fn found(&self) -> Option<&Group> {
        self.synced.as_ref().map(|(_, group)| group)
    }

    /// A version is promised to be durable.
    ///
    /// # Errors
    /// When the device has not synced it.
    pub fn promise(&mut self, version: &Version) -> Result<(), String> {
        let synced = self.synced.as_ref().map_or(0, |(number, _)| *number);
        let first = self.numbers.iter().find(|(_, asked)| asked == version).map(|(number, _)| *number);
        match first {
            Some(number) if number > synced => {
                Err(format!("{version:?} is called durable: it is state {number}, synced is {synced}"))
            }
            Some(number) => {
                self.acked = self.acked.max(number);
                Ok(())
            }
            // Found at the start, or skipped long ago.
            None => Ok(()),
        }
    }

    /// What is found is at least what was promised.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self) -> Result<(), String> {
        let found = self.synced.as_ref().map_or(0, |(number, _)| *number);
        if found < self.acked {
            return Err(format!(
                "its file opens at state {found}, but state {} was called durable",
                self.acked
            ));
        }
        Ok(())
    }

    /// The file is gone.
    pub fn lose(&mut self) {
        (self.synced, self.acked) = (None, 0);
    }
}
