//! The node's last known good: the file that holds the version it serves, so that it serves before it has reached
//! anybody, and after a crash as before.
//!
//! It must never know where a version came from or whether it is usable; it keeps what it is given. Bound to one
//! environment: a file of another one is set aside. Everything blocks; callers use a thread of their own, save the
//! newest state every `persist_interval`, and say `durable` after [`LastKnownGood::sync`].
//!
//! A save is given the whole state and writes what differs from the file (structure is shared, so finding that costs
//! as little as the change itself). So states that were skipped, or that a full disk refused, are made up for by the
//! next one, and nothing is ever queued. Invariant: each group in the file leads to a content whose digest is its
//! version's; the first one that does not is cut off at opening with all that follows.

mod record;
mod state;

use std::path::Path;
use std::sync::Arc;

use headwater_durable::{Format, Kept, Keys};
use headwater_model::{Content, Digest, Resource, Revision, Version};

use state::State;

/// Rises when the meaning of records changes; a file of another format is set aside.
const FORMAT: u32 = 1;

/// The last served value of a key, kept in place of one that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// What was served last and still is.
    pub served: Arc<Resource>,
    /// The mod revision of the rejected value.
    pub rejected: Revision,
    /// Since when the key is served like this (Unix seconds).
    pub since_unix: u64,
    /// What `served` referenced when it was retained, in the form that was usable then; in key order.
    pub references: Vec<Arc<Resource>>,
}

/// What is to be in the file.
#[derive(Clone, Debug)]
pub struct Group {
    /// The version that is served.
    pub version: Version,
    /// Its content; its digest is the version's.
    pub content: Content,
    /// All retained values, one a key.
    pub retained: Vec<Retained>,
}

/// What was in the file.
#[derive(Debug)]
pub struct Opened {
    /// The version of `content`; nothing when the file held none.
    pub version: Option<Version>,
    /// The content, proven by its digest.
    pub content: Content,
    /// The retained values in key order.
    pub retained: Vec<Retained>,
    /// What was wrong with the file and what was done about it, a sentence each.
    pub faults: Vec<String>,
    /// Whether this process writes the file. If not, see [`LastKnownGood::take_over`].
    pub writer: bool,
}

/// Why something could not be kept. The file is as before, and the next [`LastKnownGood::append`] makes up for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read, written or synced.
    #[error("last known good: {0}")]
    File(#[from] headwater_durable::Error),
    /// The content is not the version's.
    #[error("last known good: the content's digest {content} is not that of version {version:?}")]
    Digest {
        /// What was to be kept.
        version: Version,
        /// The digest of the content given for it.
        content: Digest,
    },
}

/// The open file.
#[derive(Debug)]
pub struct LastKnownGood {
    kept: Kept<State>,
}

// === impl Error ===

impl Error {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File(error) if error.is_full())
    }
}

// === impl LastKnownGood ===

impl LastKnownGood {
    /// Opens the file of an environment; it need not exist, and whatever its bytes are, what is whole in it is found.
    /// With keys it is encrypted, and brought under the first of them at once.
    ///
    /// # Errors
    /// When the device fails to read. Anything else is among [`Opened::faults`].
    pub fn open(path: &Path, environment: &str, keys: &Keys) -> Result<(Self, Opened), Error> {
        let format = Format::new("node-lkg", FORMAT);
        let (kept, faults) = Kept::open(path, format, keys, State::empty(environment))?;
        let state: &State = kept.written();
        let opened = Opened {
            version: state.version.clone(),
            content: state.content.clone(),
            retained: state.retained.values().map(|retained| (**retained).clone()).collect(),
            faults: faults.iter().map(ToString::to_string).collect(),
            writer: kept.is_writer(),
        };
        Ok((Self { kept }, opened))
    }

    /// Brings the file to a state. It survives a power cut after the next [`LastKnownGood::sync`].
    ///
    /// # Errors
    /// When the content is not the version's, this process is not the file's writer, or the file cannot be written.
    pub fn append(&mut self, group: &Group) -> Result<(), Error> {
        if group.content.digest() != group.version.digest {
            return Err(Error::Digest { version: group.version.clone(), content: group.content.digest() });
        }
        Ok(self.kept.save(&self.kept.written().changed_to(group))?)
    }

    /// Brings what was appended to the disk (`fdatasync`).
    ///
    /// # Errors
    /// When the operating system refuses. What was appended since the last success is in doubt until the next append
    /// and sync.
    pub fn sync(&mut self) -> Result<(), Error> {
        Ok(self.kept.sync()?)
    }

    /// The version of the last append that succeeded, or that was in the file at its opening.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.kept.written().version.as_ref()
    }

    /// Whether this process writes the file.
    #[must_use]
    pub const fn is_writer(&self) -> bool {
        self.kept.is_writer()
    }

    /// The file's size in bytes; nothing while another process writes it.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.kept.bytes()
    }

    /// Becomes the writer when the process that was has ended, and gives the file's faults; `None` when nothing
    /// changed. The file then holds what that process served: append what this one serves.
    ///
    /// # Errors
    /// When the lock or the file cannot be read.
    pub fn take_over(&mut self) -> Result<Option<Vec<String>>, Error> {
        let faults = self.kept.take_over()?;
        Ok(faults.map(|faults| faults.iter().map(ToString::to_string).collect()))
    }
}

#[cfg(test)]
mod tests;
