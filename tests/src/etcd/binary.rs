//! Which etcd there is, and whether it can be relied on.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A version of etcd as `etcd --version` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(String);

/// The programs of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// `etcd`.
    pub etcd: PathBuf,
    /// `etcdutl`, which restores snapshots, if the release has one.
    pub etcdutl: Option<PathBuf>,
}

/// The etcd to run.
///
/// # Panics
/// When there is none: `make test` provides one, and a test that silently passed without it would be worse.
#[must_use]
pub fn etcd_binary() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        find("ETCD_BIN", "etcd")
            .expect("no etcd found: run `make etcd`, or set ETCD_BIN to one of 3.6.2 or later")
    })
}

/// `etcdutl`, which restores snapshots, if there is one.
#[must_use]
pub fn etcdutl_binary() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| find("ETCDUTL_BIN", "etcdutl")).as_deref()
}

/// Whether progress notifications of the etcd at hand prove delivery, as the tests suppose. If not, the name of the
/// test and the reason are written past the test runner's capture, and the test should return.
#[must_use]
pub fn dependable(test: &str) -> bool {
    static VERSION: OnceLock<Version> = OnceLock::new();
    let version = VERSION.get_or_init(|| Version::of(etcd_binary()));
    if !version.is_dependable() {
        let reason = "its progress notifications are not proof of delivery; set ETCD_BIN to 3.6.2 or later";
        skipped(test, &format!("etcd {version}: {reason}"));
    }
    version.is_dependable()
}

/// Whether snapshots can be restored here; if not, as [`dependable`].
#[must_use]
pub fn restorable(test: &str) -> bool {
    let found = etcdutl_binary().is_some();
    if !found {
        skipped(test, "no etcdutl: run `make etcd`, or set ETCDUTL_BIN");
    }
    found
}

/// Says that a test does nothing here. The runner cannot report that, and swallows what `eprintln!` writes when the
/// test passes; so this goes past it.
pub fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// In order: the variable; what `make etcd` built; the path.
fn find(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(set) = std::env::var_os(variable).filter(|set| !set.is_empty()) {
        return Some(set.into());
    }
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/etcd");
    let versions = std::fs::read_dir(built).into_iter().flatten().flatten();
    let mut built: Vec<PathBuf> =
        versions.map(|version| version.path().join(name)).filter(|it| it.exists()).collect();
    built.sort();
    built.pop().or_else(|| on_path(&std::env::var_os("PATH")?, name))
}

fn on_path(path: &OsString, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

// === impl Version ===

impl Version {
    /// By its number.
    #[must_use]
    pub fn named(version: &str) -> Self {
        Self(version.to_owned())
    }

    /// What a program says of itself.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn of(binary: &Path) -> Self {
        let answer = Command::new(binary).arg("--version").output();
        let answer = answer.unwrap_or_else(|error| panic!("{} does not run: {error}", binary.display()));
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version:"));
        Self(version.unwrap_or("unknown").trim().to_owned())
    }

    /// Without conditions: 3.4.38 and later 3.4, 3.5.22 and later 3.5, 3.6.2 and later 3.6, 3.7.0 and later. A
    /// prerelease or an unreadable version is not.
    #[must_use]
    pub fn is_dependable(&self) -> bool {
        let parts: Option<Vec<u32>> = self.0.split('.').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some([3, 4, patch]) => *patch >= 38,
            Some([3, 5, patch]) => *patch >= 22,
            Some([3, 6, patch]) => *patch >= 2,
            Some([major, minor, _]) => (*major, *minor) >= (3, 7),
            _ => false,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_versions() {
        for good in ["3.4.38", "3.4.45", "3.5.22", "3.5.30", "3.6.2", "3.6.16", "3.7.0", "4.0.0"] {
            assert!(Version(good.into()).is_dependable(), "{good}");
        }
        for bad in
            ["3.4.23", "3.4.37", "3.5.7", "3.5.21", "3.6.0", "3.6.1", "3.7.0-rc.0", "2.3.8", "unknown", ""]
        {
            assert!(!Version(bad.into()).is_dependable(), "{bad}");
        }
    }
}
