//! One environment as operators reach it: a view of its state, reads beside the watch, and writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_model::resources::Context;
use headwater_model::{Generation, Revision};

use super::refusal::Refusal;
use super::view::{EnvironmentState, EnvironmentView};
use crate::backend::etcd::recorder::{Record, Recorder};
use crate::backend::{Commit, Reader};

/// How long a read waits for what this replica has just written to come back through the watch.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often it looks meanwhile, should nothing wake it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An environment's view, its backend, and what parsing its values needs.
pub struct Environment {
    view: Arc<dyn EnvironmentView>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) commit: Arc<dyn Commit>,
    pub(super) context: Context,
    recorder: Option<Arc<Recorder>>,
    /// The newest write of this replica, so that a read after a write shows it.
    written: Mutex<Option<(Generation, Revision)>>,
}

// === impl Environment ===

impl Environment {
    /// Over a running environment and its backend.
    #[must_use]
    pub fn new(
        view: Arc<dyn EnvironmentView>,
        reader: Arc<dyn Reader>,
        commit: Arc<dyn Commit>,
        context: Context,
    ) -> Self {
        Self { view, reader, commit, context, recorder: None, written: Mutex::new(None) }
    }

    /// The same, with the recorder of its watch.
    #[must_use]
    pub fn recorded_by(self, recorder: Option<Arc<Recorder>>) -> Self {
        Self { recorder, ..self }
    }

    /// The newest `limit` records of its watch, oldest first, and how many have been written in all.
    ///
    /// # Errors
    /// When the backend has no watch that answers.
    pub fn recorded(&self, limit: usize) -> Result<(Vec<Record>, u64), Refusal> {
        let recorder = self.recorder.as_ref().ok_or_else(|| Refusal::NoRecorder(self.name().to_string()))?;
        Ok(recorder.last(limit))
    }

    /// The configured name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.view.name()
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> &dyn EnvironmentView {
        &*self.view
    }

    /// What parsing its values needs.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The state, once it holds what this replica has written; after a bounded wait the state as it is.
    ///
    /// # Errors
    /// When nothing is loaded.
    pub async fn state(&self) -> Result<EnvironmentState, Refusal> {
        let floor = *self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, revision)) = floor {
            let mut wakes = self.view.wakes();
            let caught_up = async {
                loop {
                    wakes.borrow_and_update();
                    let version = self.view.state().world.version().clone();
                    if version.lineage.generation != generation || version.revision >= revision {
                        return;
                    }
                    // While a jump is held the world changes and nobody is woken.
                    let _ = tokio::time::timeout(LOOK_AGAIN, wakes.changed()).await;
                }
            };
            // Past this the source is slow or gone; the answer names its version either way.
            let _ = tokio::time::timeout(CATCH_UP, caught_up).await;
        }
        let state = self.view.state();
        if state.complete {
            return Ok(state);
        }
        let why = state.degraded().unwrap_or_else(|| "it is being read".into());
        Err(Refusal::NotComplete { name: self.name().to_string(), why })
    }

    /// The state, if this replica may decide on it.
    ///
    /// # Errors
    /// When nothing is loaded, or the source is not proven alive.
    pub(super) async fn writable_state(&self) -> Result<EnvironmentState, Refusal> {
        let state = self.state().await?;
        match state.degraded() {
            Some(why) => Err(Refusal::Degraded(why)),
            None => Ok(state),
        }
    }

    /// Waits until the state may have changed, for a bounded time.
    pub(super) async fn next_change(&self, limit: Duration) {
        let mut wakes = self.view.wakes();
        wakes.borrow_and_update();
        let _ = tokio::time::timeout(limit, wakes.changed()).await;
    }

    pub(super) fn has_written(&self, generation: Generation, revision: Revision) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written = (*written).max(Some((generation, revision)));
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("name", self.name()).finish_non_exhaustive()
    }
}
