//! Which releases of etcd lie there, as `tools/etcd-matrix.sh` leaves them.

use std::path::{Path, PathBuf};

use super::cell::Needs;
use crate::etcd::{Binaries, Version};

/// A release that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// What was asked for, such as `3.6`.
    pub minor: String,
    /// What is there.
    pub found: Option<Found>,
}

/// A release that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Such as `3.6.17`.
    pub version: Version,
    /// Its programs.
    pub binaries: Binaries,
}

/// Where `tools/etcd-matrix.sh` keeps them.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/etcd/matrix")
}

// === impl Release ===

impl Release {
    /// The newest of a minor in a folder of `v<version>/etcd`.
    #[must_use]
    pub fn find(folder: &Path, minor: &str) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let fitting = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let patch =
                name.strip_prefix('v')?.strip_prefix(minor)?.strip_prefix('.')?.parse::<u32>().ok()?;
            let etcd = entry.path().join("etcd");
            etcd.is_file().then_some((patch, etcd))
        });
        let newest = fitting.max().map(|(_, etcd)| etcd);
        Self { minor: minor.to_owned(), found: newest.map(|etcd| Found::at(&etcd)) }
    }

    /// The version, or the minor where there is none.
    #[must_use]
    pub fn name(&self) -> String {
        self.found.as_ref().map_or_else(|| self.minor.clone(), |it| it.version.to_string())
    }

    /// Why a fault with these needs cannot be run on it, if so.
    #[must_use]
    pub fn lacks(&self, needs: Needs) -> Option<String> {
        let Some(found) = &self.found else {
            return Some(format!("no etcd {} was to be had", self.minor));
        };
        if needs.etcdutl && found.binaries.etcdutl.is_none() {
            return Some(format!("etcd {} came without etcdutl, which restores snapshots", found.version));
        }
        (needs.peer_links && !cfg!(target_os = "linux"))
            .then(|| "cutting members off from each other needs Linux's /proc".to_owned())
    }
}

// === impl Found ===

impl Found {
    /// What lies at a path, with the `etcdutl` beside it if there is one.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn at(etcd: &Path) -> Self {
        let etcdutl = Some(etcd.with_file_name("etcdutl")).filter(|it| it.is_file());
        Self { version: Version::of(etcd), binaries: Binaries { etcd: etcd.to_owned(), etcdutl } }
    }

    /// Whether it has `--unsafe-no-fsync`.
    #[must_use]
    pub fn can_skip_fsync(&self) -> bool {
        !self.version.to_string().starts_with("3.4.")
    }
}
