use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn an_essential_error_ends_the_part_with_its_cause() {
    let top = Supervisor::new("plane");
    let scope = top.child("environment /a");
    scope.spawn("watch", Policy::essential(), async { Err::<(), _>("no route to host") });
    top.spawn("idle", Policy::best_effort().dropped_on_cancel(), pending::<()>());

    let failure = top.ended().await.expect("a cause");
    assert_eq!(failure.to_string(), "task plane/environment /a/watch failed: no route to host");
    assert_eq!(top.shutdown(LIMIT).await, Report { late: vec![], cause: Some(failure) });
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_message() {
    let top = Supervisor::new("plane");
    top.spawn("writer", Policy::essential(), async { assert_eq!(1, 2, "books do not balance") });
    let failure = top.ended().await.expect("a cause");
    assert!(failure.reason.contains("books do not balance"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_best_effort_failure_ends_only_its_task() {
    let top = Supervisor::new("plane");
    let task = top.spawn("connection", Policy::best_effort(), async { Err::<(), _>("reset") });
    let steady = top.spawn("steady", Policy::best_effort().dropped_on_cancel(), pending::<()>());
    while !task.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(!top.is_cancelled() && !steady.is_finished());
    assert_eq!(top.running(), ["plane/steady"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_those_who_finish_and_names_those_who_do_not() {
    let top = Supervisor::new("plane");
    let token = top.token();
    top.spawn("flush", Policy::best_effort(), async move {
        token.cancelled().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    });
    top.child("session 7").spawn("stuck", Policy::essential(), pending::<()>());
    let began = tokio::time::Instant::now();
    assert_eq!(top.shutdown(LIMIT).await, Report { late: vec!["plane/session 7/stuck".into()], cause: None });
    assert!(began.elapsed() >= LIMIT);
    assert!(top.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_child_scope_ends_alone() {
    let top = Supervisor::new("plane");
    let scope = top.child("environment /a");
    let inner = scope.child("session 1");
    inner.spawn("reader", Policy::essential().dropped_on_cancel(), pending::<()>());
    top.spawn("listener", Policy::essential().dropped_on_cancel(), pending::<()>());
    assert!(scope.shutdown(LIMIT).await.late.is_empty());
    assert!(inner.is_cancelled() && !top.is_cancelled());
    assert_eq!(top.running(), ["plane/listener"]);
}

#[tokio::test(start_paused = true)]
async fn a_restarting_task_is_made_again_until_it_ends_well() {
    let top = Supervisor::new("plane");
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let began = tokio::time::Instant::now();
    let second = Duration::from_secs(1);
    top.spawn_restarting("poll", Backoff::new(second, 60 * second), move || {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0 => Err("first"),
                1 => panic!("second"),
                _ => Ok(()),
            }
        }
    });
    top.idle().await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    // Delays of at least 0.5 s and 1 s: the second was longer, though the task ran (and failed) in between.
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_task_spawned_after_the_cancel_is_waited_for_too() {
    let top = Supervisor::new("plane");
    top.cancel();
    let done = Arc::new(AtomicU32::new(0));
    let flag = Arc::clone(&done);
    top.spawn("last words", Policy::best_effort(), async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        flag.store(1, Ordering::SeqCst);
    });
    top.spawn("newcomer", Policy::best_effort().dropped_on_cancel(), pending::<()>());
    assert!(top.shutdown(LIMIT).await.late.is_empty());
    assert_eq!(done.load(Ordering::SeqCst), 1);
}
