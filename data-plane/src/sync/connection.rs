//! One connection to a replica: dial, carry frames both ways, end.
//!
//! It must never know what a message means; the protocol decides.

use std::sync::Arc;
use std::time::Duration;

use headwater_proto::config::ReplicaMessage;
use headwater_proto::frame::Frame;
use headwater_proto::limits;
use headwater_proto::service::config_client::ConfigClient;
use headwater_tls::client::{Connector, endpoint};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

/// How many frames may wait to be sent. The protocol answers frames of the replica, and a full set of rejects is cut
/// into few.
const SEND_QUEUE: usize = 256;

/// How long the goodbye of a connection that is given up may take.
const LINGER: Duration = Duration::from_secs(1);

/// How to reach replicas.
#[derive(Clone, Debug)]
pub struct Dialler {
    /// `host:port` of each, in their order.
    pub addresses: Arc<[String]>,
    /// Opens connections.
    pub connector: Connector,
    /// Whether they are encrypted.
    pub encrypted: bool,
    /// What goes into `authorization`.
    pub token: Option<MetadataValue<Ascii>>,
}

/// What happens on a connection, with its number.
#[derive(Debug)]
pub enum Event {
    /// It is open; frames go in here.
    Opened(u64, mpsc::Sender<Frame>),
    /// A message came.
    Received(u64, Box<ReplicaMessage>),
    /// It has ended, or was never opened.
    Closed(u64, String),
}

// === impl Dialler ===

impl Dialler {
    /// Dials after a delay and carries frames until the end, which is the last event.
    pub async fn run(
        self,
        connection: u64,
        address: usize,
        after: Duration,
        events: mpsc::Sender<Event>,
        given_up: CancellationToken,
    ) {
        tokio::select! {
            () = given_up.cancelled() => return,
            () = tokio::time::sleep(after) => {}
        }
        let carried = self.carry(connection, address, &events, &given_up).await;
        let why = match carried {
            Ok(()) => "the replica closed the stream".to_owned(),
            Err(why) => why,
        };
        if !given_up.is_cancelled() {
            // The receiver ends only with the whole node.
            let _ = events.send(Event::Closed(connection, why)).await;
        }
    }

    async fn carry(
        &self,
        connection: u64,
        address: usize,
        events: &mpsc::Sender<Event>,
        given_up: &CancellationToken,
    ) -> Result<(), String> {
        let address = self.addresses.get(address).ok_or("no such address")?;
        let endpoint = endpoint(address, self.encrypted).map_err(|error| error.to_string())?;
        let channel = tokio::select! {
            () = given_up.cancelled() => return Ok(()),
            channel = endpoint.connect_with_connector(self.connector.clone()) => {
                channel.map_err(|error| format!("{address}: {}", causes(&error)))?
            }
        };
        let (frames, outgoing) = mpsc::channel(SEND_QUEUE);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let _ = events.send(Event::Opened(connection, frames)).await;
        let mut client = ConfigClient::new(channel).max_decoding_message_size(limits::MAX_MESSAGE_BYTES);
        let read = async {
            let refused =
                |status: tonic::Status| format!("{address}: {} ({:?})", status.message(), status.code());
            let mut incoming = client.sync(request).await.map_err(refused)?.into_inner();
            while let Some(frame) = incoming.message().await.map_err(refused)? {
                let message = ReplicaMessage::decode(frame).map_err(|invalid| invalid.to_string())?;
                if !given_up.is_cancelled() {
                    let _ = events.send(Event::Received(connection, Box::new(message))).await;
                }
            }
            Ok(())
        };
        tokio::pin!(read);
        tokio::select! {
            ended = &mut read => return ended,
            () = given_up.cancelled() => {}
        }
        // What was queued, a goodbye perhaps, is still on its way out.
        tokio::time::timeout(LINGER, read).await.unwrap_or(Ok(()))
    }
}

/// An error with its causes, for transports say little by themselves.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
