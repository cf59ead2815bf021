//! Moves the bytes of one direction of a stream, within the windows of both sides.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use tokio::time::sleep;

use super::Control;
use super::messages::Messages;

/// Request bytes and trailers, unharmed.
pub(super) async fn up(mut from: RecvStream, to: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    while let Some(bytes) = from.data().await {
        let bytes = bytes?;
        let length = bytes.len();
        send(to, bytes).await?;
        from.flow_control().release_capacity(length)?;
    }
    end(from, to).await
}

/// Response bytes and trailers, by the rules.
pub(super) async fn down(
    mut from: RecvStream,
    mut to: SendStream<Bytes>,
    control: &Control,
    path: &str,
    number: u64,
) -> Result<(), h2::Error> {
    let swallows = || control.rules.borrow().swallows(path, number);
    let mut messages = Messages::default();
    loop {
        let bytes = tokio::select! {
            bytes = from.data() => bytes,
            // The client gave up; without this a swallowed stream would never notice.
            reason = poll_fn(|cx| to.poll_reset(cx)) => return Err(reason?.into()),
        };
        let Some(bytes) = bytes.transpose()? else { break };
        let length = bytes.len();
        let largest = messages.take(&bytes);
        control.note(path, |seen| seen.largest = seen.largest.max(largest));
        if swallows() {
            control.note(path, |seen| seen.swallowed += length as u64);
        } else {
            paced(&mut to, bytes, control, path).await?;
        }
        from.flow_control().release_capacity(length)?;
    }
    if swallows() {
        // The end is swallowed too: the client sees an open stream, until it gives up.
        let reason = poll_fn(|cx| to.poll_reset(cx)).await?;
        return Err(reason.into());
    }
    end(from, &mut to).await
}

/// Sends at the rate the rules allow now.
async fn paced(
    to: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    control: &Control,
    path: &str,
) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        let rate = control.rules.borrow().bytes_per_second.get(path).copied();
        // Twenty pieces a second, so that a slow link is slow evenly.
        let piece = rate.map_or(bytes.len(), |rate| usize::try_from(rate / 20).unwrap_or(usize::MAX).max(1));
        let piece = bytes.split_to(piece.min(bytes.len()));
        let length = piece.len();
        send(to, piece).await?;
        control.note(path, |seen| seen.passed += length as u64);
        if let Some(rate) = rate {
            sleep(Duration::from_secs_f64(length as f64 / rate.max(1) as f64)).await;
        }
    }
    Ok(())
}

/// Sends as the receiver's window allows.
async fn send(to: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        to.reserve_capacity(bytes.len());
        let capacity = poll_fn(|cx| to.poll_capacity(cx)).await.transpose()?.ok_or(Reason::CANCEL)?;
        to.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}

async fn end(mut from: RecvStream, to: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    match from.trailers().await? {
        Some(trailers) => to.send_trailers(trailers),
        None => to.send_data(Bytes::new(), true),
    }
}
