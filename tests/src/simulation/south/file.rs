//! A replica's file: what was handed over, what is being written, what survives.
//!
//! The fold and the records' meaning are the real ones; the device is modelled: it takes time, one job after the
//! other, and what a crash catches in the middle is there or not.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_control_plane::environment::core::{Core, Keep};
use headwater_control_plane::environment::disk;
use headwater_control_plane::environment::keeper::Job;
use headwater_control_plane::fleet::Registry;
use headwater_control_plane::last_known_good::Saved;

use super::line::Line;
use super::{ENVIRONMENT, PREFIX};
use crate::simulation::mirror::Mirror;
use crate::simulation::random::Random;

/// As many jobs may wait as in the real queue.
const QUEUE: usize = 64;

/// What an observer knows of the state that a job keeps.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the source's events had added up to.
    pub mirror: Mirror,
    /// What had been published.
    pub line: Line,
}

/// The file.
#[derive(Debug)]
pub struct File {
    held: Option<(Saved, Known)>,
    queue: VecDeque<(Job, Known)>,
    behind: bool,
    pace: Duration,
    /// Writes take this long until then.
    pub slow: (Duration, Duration),
}

// === impl File ===

impl File {
    /// An empty one on a device of a random pace.
    pub fn new(random: &mut Random) -> Self {
        let pace = Duration::from_millis(*random.pick(&[5, 50, 500]));
        Self { held: None, queue: VecDeque::new(), behind: false, pace, slow: Default::default() }
    }

    /// Hands a job over, as the writer of an environment does. `true` when the device was idle.
    pub fn keep(&mut self, keep: Keep, core: &Core, known: Known) -> bool {
        let keep = if self.behind { Keep::Everything } else { keep };
        self.behind = self.queue.len() >= QUEUE;
        if self.behind {
            return false;
        }
        self.queue.push_back((Job::new(keep, core), known));
        self.queue.len() == 1
    }

    /// How long the next write takes.
    pub fn takes(&self, now: Duration, random: &mut Random) -> Duration {
        let pace = if now < self.slow.0 { self.slow.1 } else { self.pace };
        random.duration(pace / 10, pace)
    }

    /// The oldest job is on the disk. `Ok(true)` when more are waiting.
    ///
    /// # Errors
    /// When what the file holds now is not what it says it is.
    pub fn written(&mut self, registry: &Registry) -> Result<bool, String> {
        if let Some((job, known)) = self.queue.pop_front() {
            let before = self.held.take().map_or_else(|| Saved::empty(PREFIX.into()), |(saved, _)| saved);
            let saved = disk::after(&before, &job, disk::roster(registry, ENVIRONMENT));
            let (version, content) = (&saved.world.version, saved.world.content.digest());
            if version.digest != content {
                return Err(format!(
                    "its file says {version:?}, and holds a content of the digest {content}"
                ));
            }
            self.held = Some((saved, known));
        }
        Ok(!self.queue.is_empty())
    }

    /// Writes everything that waits: an orderly end.
    ///
    /// # Errors
    /// As [`File::written`].
    pub fn close(&mut self, registry: &Registry) -> Result<(), String> {
        while self.written(registry)? {}
        Ok(())
    }

    /// Throws everything away.
    pub fn lose(&mut self) {
        self.held = None;
        self.queue.clear();
    }

    /// What a crash leaves: the job that was being written is there or not.
    ///
    /// # Errors
    /// As [`File::written`].
    pub fn crash(&mut self, registry: &Registry, random: &mut Random) -> Result<(), String> {
        if random.one_in(2) {
            self.written(registry)?;
        }
        self.queue.clear();
        self.behind = false;
        Ok(())
    }

    /// What is found at a start.
    pub const fn held(&self) -> Option<&(Saved, Known)> {
        self.held.as_ref()
    }
}
