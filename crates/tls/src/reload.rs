//! A value built from files, rebuilt when they change.
//!
//! Files are compared by content every period, which also sees a swapped symbolic link and a copy that kept its
//! times. While the new content is no good, the old value stays in use and `fault` says why; a pair
//! whose second half is written a moment later is thus picked up at the next look.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use tracing::{info, warn};

use crate::material::{TlsError, Validity, read, validity};

/// A value of type `T` built from files.
pub(crate) struct Reloading<T> {
    files: Vec<PathBuf>,
    /// The file whose first certificate is our own; its time is watched.
    certificate: Option<PathBuf>,
    build: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    current: ArcSwap<Loaded<T>>,
    fault: ArcSwapOption<Fault>,
}

/// What is wrong with the files as they are now, though older material is still in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One sentence that names the file and the cure.
    pub message: String,
    /// Since when.
    pub since: SystemTime,
}

struct Loaded<T> {
    value: Arc<T>,
    contents: Vec<Vec<u8>>,
    validity: Option<Validity>,
}

// === impl Reloading ===

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Builds the first value. An own certificate that is out of its time is taken all the same, and is a fault
    /// from the start: a process that can still serve should not fail to start over it.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        certificate: Option<PathBuf>,
        build: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let build = Box::new(build);
        let first = load(&files, certificate.as_ref(), &*build)?;
        let reloading = Self {
            files,
            certificate,
            build,
            current: ArcSwap::from_pointee(first),
            fault: ArcSwapOption::empty(),
        };
        if let Err(error) = reloading.in_time(&reloading.current.load(), SystemTime::now()) {
            reloading.note(Some(error), SystemTime::now());
        }
        Ok(reloading)
    }

    /// The value in use.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.load().value)
    }

    /// When the own certificate in use is valid.
    pub(crate) fn validity(&self) -> Option<Validity> {
        self.current.load().validity
    }

    /// What is wrong now, if anything.
    pub(crate) fn fault(&self) -> Option<Arc<Fault>> {
        self.fault.load_full()
    }

    /// Looks at the files every `period`, for ever.
    pub(crate) async fn watch(self: Arc<Self>, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let own = Arc::clone(&self);
            // Files may lie on a slow mount; a lost look is made up for by the next.
            let _ = tokio::task::spawn_blocking(move || own.look(SystemTime::now())).await;
        }
    }

    /// Looks once. Answers whether a new value is in use.
    pub(crate) fn look(&self, now: SystemTime) -> bool {
        let current = self.current.load_full();
        let unchanged = match contents(&self.files) {
            Ok(contents) => contents == current.contents,
            Err(error) => {
                self.note(Some(error), now);
                return false;
            }
        };
        if unchanged {
            self.note(self.in_time(&current, now).err(), now);
            return false;
        }
        let fresh = load(&self.files, self.certificate.as_ref(), &*self.build)
            .and_then(|fresh| self.in_time(&fresh, now).map(|()| fresh));
        match fresh {
            Ok(fresh) => {
                info!(files = ?self.files, "TLS material reloaded");
                self.current.store(Arc::new(fresh));
                self.note(None, now);
                true
            }
            Err(error) => {
                self.note(Some(error), now);
                false
            }
        }
    }

    fn in_time(&self, loaded: &Loaded<T>, now: SystemTime) -> Result<(), TlsError> {
        match (&self.certificate, &loaded.validity) {
            (Some(file), Some(validity)) => validity.check(file, now),
            _ => Ok(()),
        }
    }

    /// Keeps the fault, and logs it when it is a new one: an expiry's text changes every second.
    fn note(&self, error: Option<TlsError>, now: SystemTime) {
        let held = self.fault.load_full();
        let Some(error) = error else {
            if held.is_some() {
                self.fault.store(None);
            }
            return;
        };
        let message = error.to_string();
        let known = held.as_ref().is_some_and(|held| {
            held.message == message
                || matches!(error, TlsError::Expired { .. }) && held.message.contains(" expired ")
        });
        if !known {
            warn!(%error, "TLS material is at fault, the material in use stays");
        }
        let since = held.filter(|_| known).map_or(now, |held| held.since);
        self.fault.store(Some(Arc::new(Fault { message, since })));
    }
}

fn load<T>(
    files: &[PathBuf],
    certificate: Option<&PathBuf>,
    build: &dyn Fn() -> Result<T, TlsError>,
) -> Result<Loaded<T>, TlsError> {
    // Read before the build: if a file changes in between, the next look sees a difference and builds again.
    let contents = contents(files)?;
    let validity = certificate.map(|file| validity(file)).transpose()?;
    Ok(Loaded { value: Arc::new(build()?), contents, validity })
}

fn contents(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, TlsError> {
    files.iter().map(|file| read(file)).collect()
}
