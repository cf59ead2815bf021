//! The connection to a replica, with the caller's proof on every request.

use std::time::Duration;

use headwater_proto::admin::fleet_client::FleetClient;
use headwater_proto::admin::holds_client::HoldsClient;
use headwater_proto::admin::resources_client::ResourcesClient;
use headwater_proto::admin::source_client::SourceClient;
use headwater_tls::client::{Connector, endpoint};
use headwater_tls::{ClientFiles, ClientTls};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::arguments::Connection;
use crate::exit::Error;

/// For opening a connection, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The largest answer: a large fleet with its rejects.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A connected replica.
pub(crate) struct Replica {
    channel: InterceptedService<Channel, Key>,
}

/// Adds the caller's key.
#[derive(Clone)]
pub(crate) struct Key(Option<MetadataValue<Ascii>>);

type Proven = InterceptedService<Channel, Key>;

// === impl Replica ===

impl Replica {
    /// Connects as the arguments say.
    pub(crate) async fn connect(arguments: &Connection) -> Result<Self, Error> {
        let tls = tls(arguments)?;
        let address = endpoint(&arguments.server, tls.is_some());
        let address = address.map_err(|error| Error::Usage(format!("--server: {error}")))?;
        let connected = address.connect_with_connector(Connector::new(tls, CONNECT_WITHIN)).await;
        let channel = connected
            .map_err(|error| Error::Unreachable { server: arguments.server.clone(), cause: chain(&error) })?;
        let key = arguments.key.as_ref().map(|key| key.parse()).transpose();
        let mut key: Option<MetadataValue<Ascii>> =
            key.map_err(|_| Error::Usage("--key: holds a character that a header cannot carry".into()))?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        Ok(Self { channel: InterceptedService::new(channel, Key(key)) })
    }

    pub(crate) fn resources(&self) -> ResourcesClient<Proven> {
        ResourcesClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn fleet(&self) -> FleetClient<Proven> {
        FleetClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn source(&self) -> SourceClient<Proven> {
        SourceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) fn holds(&self) -> HoldsClient<Proven> {
        HoldsClient::new(self.channel.clone())
    }
}

// === impl Key ===

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("x-api-key", key.clone());
        }
        Ok(request)
    }
}

fn tls(arguments: &Connection) -> Result<Option<ClientTls>, Error> {
    if arguments.insecure {
        return Ok(None);
    }
    let Some(ca) = arguments.cacert.clone() else {
        return Err(Error::Usage(
            "whom to trust is not said: give --cacert FILE (the authority that signed the replica's certificate), \
             or --insecure for a replica in plain text"
                .into(),
        ));
    };
    let files = ClientFiles {
        ca,
        cert: arguments.cert.clone(),
        key: arguments.key_file.clone(),
        server_name: arguments.server_name.clone(),
    };
    Ok(Some(ClientTls::load(&files, &[b"h2"])?))
}

/// An error with its causes: the transport's own text says nothing by itself.
fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let shown = cause.to_string();
        if shown != last {
            text = format!("{text}: {shown}");
        }
        last = shown;
        source = cause.source();
    }
    text
}
