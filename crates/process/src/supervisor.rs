//! Every task of a process part runs under a [`Supervisor`]: named, with a policy for its failure, and seen when
//! it ends. This is the only place that spawns.
//!
//! A supervisor is one *scope*. [`Supervisor::child`] opens a scope below it, such as one environment's, which can
//! be cancelled and waited for alone. Cancelling a scope cancels all below it. A failure whose policy is
//! [`Policy::essential`] ends the whole process part: the top scope is cancelled and keeps the cause.
//!
//! Order of an end: [`Supervisor::shutdown`] cancels the scope, waits for its tasks for a bounded time, aborts the
//! rest and names them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, warn};

use crate::Backoff;

#[cfg(test)]
mod tests;

/// A scope of supervised tasks; a clone is the same scope.
#[derive(Clone)]
pub struct Supervisor {
    scope: Arc<Scope>,
}

/// What a task's failure means, and what it does when its scope is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    essential: bool,
    drop_on_cancel: bool,
}

/// What a task may return: nothing, or a result whose error can be shown.
pub trait Outcome {
    /// The error as text, if the task failed.
    fn failure(self) -> Option<String>;
}

/// A task that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task {task} failed: {reason}")]
pub struct Failure {
    /// The task's name with those of its scopes, such as `control-plane/environment /apisix/watch`.
    pub task: String,
    /// Its error, or the message of its panic.
    pub reason: String,
}

/// How [`Supervisor::shutdown`] went.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Report {
    /// Names of the tasks that had to be aborted.
    pub late: Vec<String>,
    /// The essential failure that ended the process part, if one did.
    pub cause: Option<Failure>,
}

/// A spawned task. Dropping this changes nothing: the task belongs to its supervisor.
#[derive(Debug, Clone)]
pub struct Task(AbortHandle);

struct Scope {
    name: String,
    token: CancellationToken,
    parent: Option<Arc<Self>>,
    root: Arc<Root>,
}

/// What all scopes of one tree share.
struct Root {
    token: CancellationToken,
    tasks: Mutex<Tasks>,
    /// Rises at every end of a task, so that whoever waits looks again.
    ends: watch::Sender<u64>,
}

#[derive(Default)]
struct Tasks {
    next: u64,
    running: BTreeMap<u64, Running>,
    cause: Option<Failure>,
}

struct Running {
    name: Cow<'static, str>,
    scope: Arc<Scope>,
    /// Absent for the moment between registration and the spawn.
    abort: Option<AbortHandle>,
    aborted: bool,
}

/// Takes the task off the list however it ends, an abort included.
struct Registration {
    id: u64,
    root: Arc<Root>,
}

// === impl Supervisor ===

impl Supervisor {
    /// The top scope of a process part. Needs no runtime until the first spawn.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let token = CancellationToken::new();
        let root =
            Arc::new(Root { token: token.clone(), tasks: Mutex::default(), ends: watch::Sender::new(0) });
        Self { scope: Arc::new(Scope { name: name.into(), token, parent: None, root }) }
    }

    /// A scope below this one.
    #[must_use]
    pub fn child(&self, name: impl Into<String>) -> Self {
        Self {
            scope: Arc::new(Scope {
                name: name.into(),
                token: self.scope.token.child_token(),
                parent: Some(Arc::clone(&self.scope)),
                root: Arc::clone(&self.scope.root),
            }),
        }
    }

    /// Spawns a task. Must be called inside a tokio runtime.
    ///
    /// After the scope was cancelled the task is still spawned, for the work of ending is work too, except where
    /// its policy says [`Policy::dropped_on_cancel`].
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, policy: Policy, future: F) -> Task
    where
        F: Future + Send + 'static,
        F::Output: Outcome + Send + 'static,
    {
        let name = name.into();
        let registration = self.scope.root.register(name.clone(), &self.scope);
        let id = registration.id;
        let scope = Arc::clone(&self.scope);
        let span = tracing::debug_span!("task", name = %name);
        let body = async move {
            let _registration = registration;
            let guarded = AssertUnwindSafe(future).catch_unwind();
            let ended = if policy.drop_on_cancel {
                tokio::select! {
                    biased;
                    () = scope.token.cancelled() => return,
                    ended = guarded => ended,
                }
            } else {
                guarded.await
            };
            let reason = match ended {
                Ok(output) => output.failure(),
                Err(panic) => Some(panic_message(panic.as_ref())),
            };
            if let Some(reason) = reason {
                scope.failed(&name, reason, policy);
            }
        };
        #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
        let handle = tokio::spawn(body.instrument(span)).abort_handle();
        self.scope.root.spawned(id, handle.clone());
        Task(handle)
    }

    /// Spawns a task that is made again, after a delay, each time it fails or panics; an end without failure is
    /// final. The backoff starts over after a run that lasted more than twice the delay before it.
    ///
    /// The task is dropped when the scope is cancelled.
    pub fn spawn_restarting<M, F>(
        &self,
        name: impl Into<Cow<'static, str>>,
        mut backoff: Backoff,
        mut make: M,
    ) -> Task
    where
        M: FnMut() -> F + Send + 'static,
        F: Future + Send + 'static,
        F::Output: Outcome + Send + 'static,
    {
        let name = name.into();
        let scope = Arc::clone(&self.scope);
        let path = scope.path(&name);
        self.spawn(name, Policy::best_effort().dropped_on_cancel(), async move {
            let mut delay = Duration::ZERO;
            loop {
                let began = tokio::time::Instant::now();
                let reason = match AssertUnwindSafe(make()).catch_unwind().await {
                    Ok(output) => match output.failure() {
                        None => return,
                        Some(reason) => reason,
                    },
                    Err(panic) => panic_message(panic.as_ref()),
                };
                if began.elapsed() > delay * 2 {
                    backoff.reset();
                }
                delay = backoff.next(rand::random());
                warn!(task = %path, %reason, retry_in_ms = delay.as_millis(), "task failed, starting it again");
                tokio::time::sleep(delay).await;
            }
        })
    }

    /// Cancelled when this scope, one above it, or the process part ends.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.scope.token.clone()
    }

    /// Asks all tasks of this scope and below to end. Returns at once.
    pub fn cancel(&self) {
        self.scope.token.cancel();
    }

    /// Whether this scope is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.scope.token.is_cancelled()
    }

    /// Waits until this scope is cancelled. Safe to drop and call again.
    pub async fn cancelled(&self) {
        self.scope.token.cancelled().await;
    }

    /// Waits until the process part ends: by an essential failure, which is answered, or by a cancel of the top
    /// scope.
    pub async fn ended(&self) -> Option<Failure> {
        self.scope.root.token.cancelled().await;
        self.failure()
    }

    /// The essential failure that ended the process part, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.scope.root.lock().cause.clone()
    }

    /// Names of the tasks that run in this scope and below, in the order they were spawned.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        let tasks = self.scope.root.lock();
        tasks.within(&self.scope).map(|running| running.scope.path(&running.name)).collect()
    }

    /// Cancels this scope, waits up to `limit` for its tasks, then aborts the rest.
    ///
    /// Must not be awaited by a task of this scope: it would wait for itself, and be aborted.
    pub async fn shutdown(&self, limit: Duration) -> Report {
        self.cancel();
        let late = if tokio::time::timeout(limit, self.idle()).await.is_ok() {
            Vec::new()
        } else {
            let late = self.abort_all();
            warn!(scope = %self.scope.name, ?late, "tasks did not end in time and were aborted");
            // An abort takes effect at the task's next await; one that never awaits must not hold up the end.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.idle()).await;
            late
        };
        Report { late, cause: self.failure() }
    }

    /// Waits until no task of this scope and below runs.
    async fn idle(&self) {
        let mut ends = self.scope.root.ends.subscribe();
        loop {
            ends.borrow_and_update();
            if self.scope.root.lock().within(&self.scope).next().is_none() {
                return;
            }
            if ends.changed().await.is_err() {
                return;
            }
        }
    }

    fn abort_all(&self) -> Vec<String> {
        let mut tasks = self.scope.root.lock();
        let mut late = Vec::new();
        for running in tasks.running.values_mut().filter(|running| running.scope.is_within(&self.scope)) {
            late.push(running.scope.path(&running.name));
            running.aborted = true;
            if let Some(abort) = &running.abort {
                abort.abort();
            }
        }
        late
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("scope", &self.scope.name)
            .field("running", &self.running())
            .finish()
    }
}

// === impl Policy ===

impl Policy {
    /// An error or a panic ends the process part with the failure as its cause.
    #[must_use]
    pub const fn essential() -> Self {
        Self { essential: true, drop_on_cancel: false }
    }

    /// An error or a panic is logged and nothing more: the work of one connection, one request, one try.
    #[must_use]
    pub const fn best_effort() -> Self {
        Self { essential: false, drop_on_cancel: false }
    }

    /// The task has nothing to finish: it is dropped at its next await when its scope is cancelled. Without this a
    /// task watches [`Supervisor::token`] itself.
    #[must_use]
    pub const fn dropped_on_cancel(self) -> Self {
        Self { drop_on_cancel: true, ..self }
    }
}

// === impl Outcome ===

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Display> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        // `#` makes error types that know their causes show the whole chain.
        self.err().map(|error| format!("{error:#}"))
    }
}

// === impl Task ===

impl Task {
    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

// === impl Scope ===

impl Scope {
    fn path(&self, task: &str) -> String {
        let mut names = vec![task, &self.name];
        let mut above = &self.parent;
        while let Some(scope) = above {
            names.push(&scope.name);
            above = &scope.parent;
        }
        names.reverse();
        names.join("/")
    }

    fn is_within(&self, other: &Arc<Self>) -> bool {
        let mut scope = self;
        loop {
            if std::ptr::eq(scope, Arc::as_ptr(other)) {
                return true;
            }
            match &scope.parent {
                Some(parent) => scope = parent,
                None => return false,
            }
        }
    }

    fn failed(&self, task: &str, reason: String, policy: Policy) {
        let failure = Failure { task: self.path(task), reason };
        if !policy.essential {
            warn!(task = %failure.task, reason = %failure.reason, "task failed");
            return;
        }
        error!(task = %failure.task, reason = %failure.reason, "essential task failed, the process part ends");
        self.root.lock().cause.get_or_insert(failure);
        self.root.token.cancel();
    }
}

// === impl Root ===

impl Root {
    fn register(self: &Arc<Self>, name: Cow<'static, str>, scope: &Arc<Scope>) -> Registration {
        let mut tasks = self.lock();
        let id = tasks.next;
        tasks.next += 1;
        let running = Running { name, scope: Arc::clone(scope), abort: None, aborted: false };
        tasks.running.insert(id, running);
        Registration { id, root: Arc::clone(self) }
    }

    /// Keeps the handle, unless the task has ended already; passes on an abort that came in between.
    fn spawned(&self, id: u64, handle: AbortHandle) {
        if let Some(running) = self.lock().running.get_mut(&id) {
            if running.aborted {
                handle.abort();
            }
            running.abort = Some(handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        // Nothing panics while holding it; if something did, the list is still whole.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Tasks ===

impl Tasks {
    fn within<'a>(&'a self, scope: &'a Arc<Scope>) -> impl Iterator<Item = &'a Running> {
        self.running.values().filter(move |running| running.scope.is_within(scope))
    }
}

// === impl Registration ===

impl Drop for Registration {
    fn drop(&mut self) {
        let ended = self.root.lock().running.remove(&self.id);
        if let Some(running) = ended {
            debug!(task = %running.name, "task ended");
        }
        self.root.ends.send_modify(|ends| *ends = ends.wrapping_add(1));
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a message"))
}
