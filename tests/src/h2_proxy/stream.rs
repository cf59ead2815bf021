//! One stream: request up, response down.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};

use super::{Control, pump};

/// Counts the stream out, however it ends.
struct Open {
    control: Arc<Control>,
    path: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.control.note(&self.path, |seen| seen.open -= 1);
    }
}

/// Passes one call through to its end.
pub(super) async fn pass(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    upstream: SendRequest<Bytes>,
    control: Arc<Control>,
) -> Result<(), h2::Error> {
    let path = request.uri().path().to_owned();
    let number = control.open(&path);
    let open = Open { control, path };
    let (head, body) = request.into_parts();
    let ended = body.is_end_stream();
    let mut upstream = upstream.ready().await?;
    let (response, mut sender) = upstream.send_request(Request::from_parts(head, ()), ended)?;
    let down = async {
        let response = tokio::select! {
            response = response => response?,
            // The client gave up before there was an answer.
            reason = poll_fn(|cx| respond.poll_reset(cx)) => return Err(reason?.into()),
        };
        let (head, body) = response.into_parts();
        let ended = body.is_end_stream();
        let sender = respond.send_response(Response::from_parts(head, ()), ended)?;
        if ended { Ok(()) } else { pump::down(body, sender, &open.control, &open.path, number).await }
    };
    let outcome = if ended { down.await } else { both(pump::up(body, &mut sender), down).await };
    if let Err(error) = outcome {
        // Whoever still listens on either side learns how the other ended.
        let reason = error.reason().unwrap_or(Reason::CANCEL);
        reset(&mut sender, &mut respond, reason);
    }
    Ok(())
}

/// Both directions. The end of the response is the end of the stream; that of the request is not.
async fn both(
    up: impl Future<Output = Result<(), h2::Error>>,
    down: impl Future<Output = Result<(), h2::Error>>,
) -> Result<(), h2::Error> {
    let mut down = std::pin::pin!(down);
    tokio::select! {
        ended = &mut down => return ended,
        ended = up => ended?,
    }
    down.await
}

fn reset(sender: &mut SendStream<Bytes>, respond: &mut SendResponse<Bytes>, reason: Reason) {
    sender.send_reset(reason);
    respond.send_reset(reason);
}
