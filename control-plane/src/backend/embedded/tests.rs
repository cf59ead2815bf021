//! The store over its file: what is durable, what is seen, and what an opening makes of a file.

mod opening;
mod serving;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use headwater_durable::Keys;
use headwater_process::Supervisor;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{EmbeddedStore, Settings};
use crate::backend::{
    Commit, CommitError, Committed, Operation, ResumePoint, Source, SourceCommand, SourceEvent, Stage,
    Transaction,
};

fn settings(directory: &Path, keys: Keys) -> Settings {
    Settings { file: directory.join("store"), keys, progress_interval: Duration::from_secs(5) }
}

/// An open store and the scope its writer runs in.
struct Open {
    store: EmbeddedStore,
    scope: Supervisor,
}

impl Open {
    fn at(directory: &Path) -> Self {
        Self::under(directory, Keys::default())
    }

    fn under(directory: &Path, keys: Keys) -> Self {
        let scope = Supervisor::new("test");
        let store = EmbeddedStore::open(&settings(directory, keys), &scope).unwrap();
        Self { store, scope }
    }

    async fn put(&self, key: &str, value: &str) -> Result<Committed, CommitError> {
        self.commit([put(key, value)]).await
    }

    async fn commit(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<Committed, CommitError> {
        let operations = operations.into_iter().collect();
        self.store.commit(Transaction { compares: Vec::new(), operations }).await
    }

    /// Lets go of the file.
    async fn close(self) {
        drop(self.store);
        let report = self.scope.shutdown(Duration::from_secs(5)).await;
        assert!(report.late.is_empty());
    }
}

fn put(key: &str, value: &str) -> Operation {
    Operation::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn delete(key: &str) -> Operation {
    Operation::Delete { key: Bytes::copy_from_slice(key.as_bytes()) }
}

/// A running source and what it is told through.
struct Listener {
    events: mpsc::Receiver<SourceEvent>,
    commands: mpsc::Sender<SourceCommand>,
    stop: CancellationToken,
}

fn listen(open: &Open, resume: Option<ResumePoint>, room: usize) -> Listener {
    let (sender, events) = mpsc::channel(room);
    let (commands, receiver) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let source = Box::new(open.store.source());
    let run = source.run(resume, sender, receiver, stop.clone());
    open.scope.spawn("source", headwater_process::Policy::best_effort(), run);
    Listener { events, commands, stop }
}

impl Listener {
    /// The next event that is neither a state nor progress.
    async fn next(&mut self) -> SourceEvent {
        loop {
            match self.events.recv().await.expect("the source runs") {
                SourceEvent::State(_) | SourceEvent::Progress(_) => {}
                event => return event,
            }
        }
    }

    async fn until_live(&mut self) {
        loop {
            if let SourceEvent::State(state) = self.events.recv().await.expect("the source runs")
                && state.stage == Stage::Live
            {
                return;
            }
        }
    }
}
