//! Settings of a process: one YAML file, environment variables over it, `--set key=value` over those, turned into a
//! typed value or into **all** faults at once.
//!
//! A plane describes its settings as plain serde structs with `#[serde(default)]` where a default exists, and
//! implements [`Settings`] for what types cannot say. Unknown keys are refused here, for the whole tree, so the
//! structs must *not* carry `deny_unknown_fields` (serde would stop at the first), and must not use `flatten` or
//! internally tagged enums, which hide unknown keys from whoever looks for them.
//!
//! Nothing here reads the real environment: it is passed in.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub mod byte_size;
pub mod duration;
mod path;
mod secret;
mod state_encryption;
mod tree;
mod typed;

#[cfg(test)]
mod tests;

pub use secret::Secret;
pub use state_encryption::{KeySource, StateEncryption, StateKey};

use path::KeyPath;
use tree::Tree;

/// What environment variables begin with: `HEADWATER__ETCD__USER=root` sets `etcd.user`.
pub const ENVIRONMENT_PREFIX: &str = "HEADWATER__";

/// A typed settings file.
pub trait Settings: DeserializeOwned + Serialize {
    /// The faults that types cannot express: bounds, contradictions, files that are missing.
    fn check(&self) -> Vec<Fault>;
}

/// Where settings come from, lowest first: file, environment, `--set`.
#[derive(Debug, Default)]
pub struct Sources {
    file: Option<(String, String)>,
    environment: Vec<(String, String)>,
    set: Vec<String>,
}

/// One thing wrong with the settings, in one sentence that names the key and the cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key, such as `etcd.endpoints[0]`; empty for the file as a whole.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Where the value came from, if known: a file, a variable, an argument.
    pub origin: Option<String>,
}

/// All that is wrong with the settings; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Reads, merges, types and checks settings.
///
/// # Errors
/// Every fault found. The checks of [`Settings::check`] run only on settings of which every value could be read.
pub fn load<T: Settings>(sources: Sources) -> Result<T, Faults> {
    let mut faults = Vec::new();
    let mut tree = Tree::new(sources, &mut faults);
    let value: Option<T> = typed::read(&mut tree, &mut faults);
    match value {
        Some(value) if faults.is_empty() => {
            faults.extend(value.check().into_iter().map(|fault| tree.with_origin(fault)));
            if faults.is_empty() { Ok(value) } else { Err(Faults(faults)) }
        }
        _ => Err(Faults(faults)),
    }
}

/// The settings as YAML, secrets redacted.
#[must_use]
pub fn dump<T: Settings>(settings: &T) -> String {
    serde_saphyr::to_string(settings).unwrap_or_else(|error| format!("# settings cannot be shown: {error}\n"))
}

// === impl Sources ===

impl Sources {
    /// No source: all defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// One fault that names the file.
    pub fn file(self, path: &Path) -> Result<Self, Faults> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(self.text(name, text)),
            Err(error) => Err(Faults(vec![Fault::new("", unreadable(&name, &error))])),
        }
    }

    /// The file's text, already read; `name` is what faults call it.
    #[must_use]
    pub fn text(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.file = Some((name.into(), text.into()));
        self
    }

    /// Environment variables; those without [`ENVIRONMENT_PREFIX`] are passed over. `__` separates the parts of a
    /// key, case does not matter, and the value is read as YAML.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = variables.into_iter().filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX));
        self.environment.extend(ours);
        // The order of an environment means nothing; that of the faults must not depend on it.
        self.environment.sort();
        self
    }

    /// Arguments of `--set`, each `key.part=value`, the value read as YAML. Later ones win.
    #[must_use]
    pub fn set(mut self, assignments: impl IntoIterator<Item = String>) -> Self {
        self.set.extend(assignments);
        self
    }
}

// === impl Fault ===

impl Fault {
    /// A fault at `path`; `message` is one sentence with the cure.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), origin: None }
    }

    fn at(path: &KeyPath, message: impl Into<String>) -> Self {
        Self::new(path.to_string(), message)
    }

    fn out_of(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.origin {
            Some(origin) => write!(f, " (from {origin})"),
            None => Ok(()),
        }
    }
}

// === impl Faults ===

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} fault{} in the settings", if count == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Faults {}

fn unreadable(name: &str, error: &io::Error) -> String {
    format!("settings file {name} cannot be read ({error}): check the path and its permissions")
}
