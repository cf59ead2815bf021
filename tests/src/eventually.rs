//! Waiting for a condition with a deadline, failing with what was seen last.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `probe` answers `Ok`, and answers its value.
///
/// # Panics
/// When it does not within `limit`; the message holds `what` and what was seen last. A look that hangs counts too.
pub async fn eventually<T, E, F, P>(what: &str, limit: Duration, mut probe: P) -> T
where
    E: Debug,
    F: Future<Output = Result<T, E>>,
    P: FnMut() -> F,
{
    let deadline = Instant::now() + limit;
    let mut last: Option<E> = None;
    let mut looks = 0_u32;
    loop {
        looks += 1;
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(seen)) => last = Some(seen),
            Err(_) => panic!("{what}: not within {limit:?}; look {looks} hung, before it was seen {last:?}"),
        }
        if Instant::now() >= deadline {
            panic!("{what}: not within {limit:?}; after {looks} looks was seen {last:?}");
        }
        sleep(PAUSE.min(deadline - Instant::now())).await;
    }
}

/// Looks all through `span`, for what must not happen.
///
/// # Panics
/// At the first look that answers `Err`.
pub async fn throughout<E, F, P>(what: &str, span: Duration, mut probe: P)
where
    E: Debug,
    F: Future<Output = Result<(), E>>,
    P: FnMut() -> F,
{
    let began = Instant::now();
    while began.elapsed() < span {
        if let Err(seen) = probe().await {
            panic!("{what}: no longer after {:?}; seen {seen:?}", began.elapsed());
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn answers_the_value_once_it_is_there() {
        let looks = Cell::new(0);
        let value = eventually("third look", LIMIT, || {
            looks.set(looks.get() + 1);
            let seen = looks.get();
            async move { if seen == 3 { Ok("there") } else { Err(seen) } }
        })
        .await;
        assert_eq!((value, looks.get()), ("there", 3));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the answer: not within 5s")]
    async fn fails_when_the_condition_never_holds() {
        eventually("the answer", LIMIT, || async { Err::<(), _>(41) }).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "was seen Some(41)")]
    async fn fails_with_what_was_seen_last() {
        eventually("the answer", LIMIT, || async { Err::<(), _>(41) }).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "look 1 hung")]
    async fn fails_when_a_look_hangs() {
        eventually("the answer", LIMIT, pending::<Result<(), u8>>).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "ready: no longer after 1")]
    async fn throughout_fails_at_the_first_no() {
        let began = Instant::now();
        throughout("ready", LIMIT, || async move {
            if began.elapsed() < Duration::from_secs(1) { Ok(()) } else { Err("503") }
        })
        .await;
    }
}
