//! What each of our processes uses in quiet times: tasks, open files, sockets, threads, memory, files of its folder.
//!
//! The level of a process is what it uses in the first quiet time of its life, once everybody is connected and the
//! queues are empty; later ones may not lie above it by more than [`Levels::above`] allows. Each number allowed there
//! says what it is for; a leak of one thing a connection or a change passes any of them within a few minutes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::world::World;
use crate::http;

/// Clients beside the nodes may connect to either replica and fail over, so a replica may have every node or none; a
/// session is a connection, which is one socket, and three or four tasks.
const SESSIONS: u64 = 5;
const TASKS_OF_A_SESSION: u64 = 4;
/// Pages that are being asked for at the moment of the look, and etcd's second connection, closed when idle.
const PASSING: u64 = 6;
/// The blocking pool of tokio ends threads after 10 s without work, and opens one for each piece of work at a time: a
/// short quiet time still has some of the last change.
const THREADS: u64 = 8;
/// The new file of a rewrite, and the one from before it.
const FILES: u64 = 2;
/// Memory is to be what the content takes: allocators keep what they had once, rings of bounded length (responses of
/// the recorder, tombstones) fill only in the first minutes, and a dump of all keys is a passing copy of all.
const MEMORY_PERCENT: u64 = 150;
const MEMORY_KIB: u64 = 32 * 1024;
/// A file is rewritten when what is no longer needed in it outgrows the rest.
const DISK_FACTOR: u64 = 4;
const DISK_BYTES: u64 = 16 << 20;

/// What a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Levels {
    /// Tasks of its runtime.
    pub tasks: u64,
    /// Open files, sockets among them.
    pub files: u64,
    /// Open sockets.
    pub sockets: u64,
    /// Threads.
    pub threads: u64,
    /// Resident memory.
    pub resident_kib: u64,
    /// Files of its folder.
    pub disk_files: u64,
    /// Their size together.
    pub disk_bytes: u64,
}

/// One life of a process.
#[derive(Debug, Clone, Serialize)]
pub struct Life {
    /// Whose: `r0`, `n2`.
    pub who: String,
    /// The process.
    pub process: u32,
    /// In its first quiet time.
    pub first: Levels,
    /// In its last one.
    pub last: Levels,
    /// How many quiet times it has seen.
    pub looks: u64,
}

/// All lives that saw a quiet time.
#[derive(Debug, Default)]
pub struct Lives(BTreeMap<u32, Life>);

// === impl Lives ===

impl Lives {
    /// Looks at every one of our processes; answers what lies above its level.
    ///
    /// # Errors
    /// When the system or a process does not say.
    pub async fn look(&mut self, world: &World) -> Result<Vec<String>> {
        let mut above = Vec::new();
        for who in world.planes() {
            let (process, health) = world.plane(who);
            let levels =
                look(process, health, &world.data(who)).await.with_context(|| format!("look at {who}"))?;
            let life = self.0.entry(process).or_insert_with(|| Life {
                who: who.to_string(),
                process,
                first: levels,
                last: levels,
                looks: 0,
            });
            life.looks += 1;
            life.last = levels;
            above.extend(
                levels.above(&life.first).iter().map(|it| format!("{who} (process {process}): {it}")),
            );
        }
        Ok(above)
    }

    /// All of them, in the order of their processes' numbers.
    #[must_use]
    pub fn all(&self) -> Vec<&Life> {
        self.0.values().collect()
    }
}

// === impl Levels ===

impl Levels {
    /// What lies above what a process used first by more than is allowed.
    #[must_use]
    pub fn above(&self, first: &Self) -> Vec<String> {
        let limits = [
            ("tasks", self.tasks, first.tasks + SESSIONS * TASKS_OF_A_SESSION + PASSING, first.tasks),
            ("open files", self.files, first.files + SESSIONS + PASSING, first.files),
            ("sockets", self.sockets, first.sockets + SESSIONS + PASSING, first.sockets),
            ("threads", self.threads, first.threads + THREADS, first.threads),
            (
                "KiB of memory",
                self.resident_kib,
                first.resident_kib * MEMORY_PERCENT / 100 + MEMORY_KIB,
                first.resident_kib,
            ),
            ("files on disk", self.disk_files, first.disk_files + FILES, first.disk_files),
            ("bytes on disk", self.disk_bytes, DISK_FACTOR * first.disk_bytes + DISK_BYTES, first.disk_bytes),
        ];
        let above = limits.iter().filter(|(_, now, limit, _)| now > limit);
        above
            .map(|(what, now, limit, was)| format!("{now} {what}, {was} at first, allowed {limit}"))
            .collect()
    }
}

async fn look(process: u32, health: &str, folder: &Path) -> Result<Levels> {
    let tasks = tasks(health).await?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("read its status")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a field")?;
        line.split_whitespace().next().context("a number")?.parse().context("a number")
    };
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).context("read its open files")?;
    let open: Vec<_> = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).collect();
    let sockets = open.iter().filter(|target| target.to_string_lossy().starts_with("socket:")).count();
    let (disk_files, disk_bytes) = disk(folder)?;
    Ok(Levels {
        tasks,
        files: open.len() as u64,
        sockets: sockets as u64,
        threads: field("Threads:")?,
        resident_kib: field("VmRSS:")?,
        disk_files,
        disk_bytes,
    })
}

async fn tasks(health: &str) -> Result<u64> {
    let (_, text) = http::get(health, "/metrics").await?;
    let line = text.lines().find_map(|line| line.strip_prefix("headwater_tasks "));
    line.context("a plane counts its tasks")?.parse().context("a count")
}

/// Number and size of all files below a folder.
fn disk(folder: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        // A rewrite may have replaced it since.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            let (more, size) = disk(&entry.path())?;
            (files, bytes) = (files + more, bytes + size);
        } else {
            (files, bytes) = (files + 1, bytes + about.len());
        }
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Levels = Levels {
        tasks: 40,
        files: 30,
        sockets: 20,
        threads: 4,
        resident_kib: 60_000,
        disk_files: 3,
        disk_bytes: 8_000_000,
    };

    #[test]
    fn everything_that_grows_is_named() {
        assert_eq!(FIRST.above(&FIRST), [""; 0]);
        for (grown, name) in [
            (Levels { tasks: 200, ..FIRST }, "tasks"),
            (Levels { files: 60, ..FIRST }, "open files"),
            (Levels { sockets: 50, ..FIRST }, "sockets"),
            (Levels { threads: 16, ..FIRST }, "threads"),
            (Levels { resident_kib: 300_000, ..FIRST }, "memory"),
            (Levels { disk_files: 9, ..FIRST }, "files on disk"),
            (Levels { disk_bytes: 80_000_000, ..FIRST }, "bytes on disk"),
        ] {
            let above = grown.above(&FIRST);
            assert!(above.len() == 1 && above[0].contains(name), "{name}: {above:?}");
        }
    }

    #[tokio::test]
    async fn a_process_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(folder.path().join("in/file"), "four").unwrap();
        assert_eq!(disk(folder.path()).unwrap(), (1, 4));
        let nobody = look(std::process::id(), "127.0.0.1:1", folder.path()).await;
        assert!(nobody.is_err());
    }
}
