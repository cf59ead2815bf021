//! Bare tonic: a bidirectional stream a receiver, shared bytes down, a short reply up, and nothing else.
//!
//! What a control plane on this stack costs at least: no versions, no cursor, no registry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use headwater_process::{Policy, Supervisor};
use headwater_proto::frame::Frame;
use headwater_proto::limits;
use headwater_proto::service::config_client::ConfigClient;
use headwater_proto::service::config_server::{Config, ConfigServer};
use headwater_tls::client::{Connector, endpoint};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::beat::{Beats, HEAD, REPLY};
use super::child::{Answer, Order, Parent};
use super::options::Contender;
use super::receivers::Receivers;

/// Messages that may wait for a slow stream.
const WAITING: usize = 1024;

/// For opening a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

struct Bare {
    beats: broadcast::Sender<Frame>,
    supervisor: Supervisor,
}

type Outgoing = Pin<Box<dyn Stream<Item = Result<Frame, Status>> + Send>>;

// === impl Bare ===

#[tonic::async_trait]
impl Config for Bare {
    type SyncStream = Outgoing;

    async fn sync(&self, request: Request<Streaming<Frame>>) -> Result<Response<Outgoing>, Status> {
        let beats = BroadcastStream::new(self.beats.subscribe());
        let mut replies = request.into_inner();
        self.supervisor.spawn("replies", Policy::best_effort(), async move {
            while let Ok(Some(_)) = replies.message().await {}
        });
        // Says to the receiver that it is subscribed.
        let first = futures_util::stream::iter([Ok(Frame::default())]);
        let beats = beats.map(|beat| beat.map_err(|lagged| Status::data_loss(lagged.to_string())));
        Ok(Response::new(Box::pin(first.chain(beats))))
    }
}

/// Runs the server until the parent is done.
///
/// # Errors
/// When it cannot listen, or the parent fails.
pub async fn serve(options: Contender) -> Result<()> {
    let address = options.address.parse().context("an address")?;
    let incoming = TcpIncoming::bind(address).context("listen")?.with_nodelay(Some(true));
    let supervisor = Supervisor::new("bare tonic");
    let beats = broadcast::Sender::new(WAITING);
    let bare = Bare { beats: beats.clone(), supervisor: supervisor.child("streams") };
    let server = Server::builder().add_service(ConfigServer::new(bare)).serve_with_incoming(incoming);
    supervisor.spawn("server", Policy::essential(), server);
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    let mut sent = 0;
    while let Some(order) = parent.order().await? {
        let Order::Send { updates, pace_ns } = order else { bail!("a server only sends") };
        let series = Beats::new(sent + 1, Duration::from_nanos(pace_ns));
        sent += updates;
        for index in 0..updates {
            tokio::time::sleep(series.until(index)).await;
            beats.send(Frame(series.message(index, options.bytes))).context("nobody receives")?;
        }
        parent.tell(&Answer::Sent(sent)).await?;
    }
    Ok(())
}

/// Runs the clients until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn receive(options: Contender) -> Result<()> {
    Receivers::new(options.address, options.count)?.run(client).await
}

async fn client(all: Arc<Receivers>, receiver: usize) -> Result<()> {
    let mut starting = Some(all.place().await?);
    let endpoint = endpoint(&all.address, false)?;
    let channel = endpoint.connect_with_connector(Connector::new(None, CONNECT_WITHIN)).await?;
    let (replies, outgoing) = mpsc::channel(1);
    let mut client = ConfigClient::new(channel).max_decoding_message_size(limits::MAX_MESSAGE_BYTES);
    let mut incoming = client.sync(Request::new(ReceiverStream::new(outgoing))).await?.into_inner();
    let reply = Frame(Bytes::from_static(&[0; REPLY]));
    while let Some(frame) = incoming.message().await.context("receive")? {
        if frame.0.len() < HEAD {
            all.is_ready();
            drop(starting.take());
            continue;
        }
        all.received(receiver, &frame.0);
        replies.send(reply.clone()).await.context("reply")?;
    }
    bail!("the server closed the stream")
}
