//! gRPC for operators: admits callers, turns messages into use cases and back, and nothing else.

use std::sync::Arc;

use headwater_process::Supervisor;
use headwater_process::drain::DrainWatcher;
use headwater_proto::admin::DESCRIPTOR;
use headwater_proto::admin::fleet_server::FleetServer;
use headwater_proto::admin::holds_server::HoldsServer;
use headwater_proto::admin::resources_server::ResourcesServer;
use headwater_proto::admin::source_server::SourceServer;
use headwater_tls::{Incoming, Peer};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Server;
use tonic::{Code, Request, Status};

use super::access::{Access, Admitted, Denied, Role};
use super::refusal::Refusal;
use super::{Admin, Environment};

mod convert;
mod fleet;
mod holds;
mod resources;
mod source;

/// The metadata key of a caller's key.
pub const KEY_HEADER: &str = "x-api-key";
/// The trailer with the stable word of a refusal.
pub const REASON_TRAILER: &str = "headwater-reason";
/// The largest request: many batches of an apply.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// What every service of the listener shares; a clone is cheap.
#[derive(Clone, Debug)]
pub struct Shared {
    admin: Arc<Admin>,
    access: Access,
    supervisor: Supervisor,
}

/// Why the listener ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The description of the interface, which is built in, could not be read.
    #[error("reflection cannot be offered: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

/// Serves the operators' interface, health and reflection until the drain begins.
///
/// # Errors
/// When the transport fails.
pub async fn serve(shared: Shared, incoming: Incoming, mut drain: DrainWatcher) -> Result<(), ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<ResourcesServer<Shared>>().await;
    reporter.set_serving::<FleetServer<Shared>>().await;
    reporter.set_serving::<SourceServer<Shared>>().await;
    reporter.set_serving::<HoldsServer<Shared>>().await;
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Server::builder()
        .add_service(health)
        .add_service(describe().build_v1()?)
        .add_service(describe().build_v1alpha()?)
        .add_service(ResourcesServer::new(shared.clone()).max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(FleetServer::new(shared.clone()))
        .add_service(SourceServer::new(shared.clone()))
        .add_service(HoldsServer::new(shared))
        .serve_with_incoming_shutdown(incoming, async move { drain.draining().await })
        .await?;
    Ok(())
}

// === impl Shared ===

impl Shared {
    /// Over the use cases, for the callers on the list; waits run under the supervisor.
    #[must_use]
    pub const fn new(admin: Arc<Admin>, access: Access, supervisor: Supervisor) -> Self {
        Self { admin, access, supervisor }
    }

    /// Lets the caller of a request in, or says why not.
    fn admit<T>(&self, request: &Request<T>, needed: Role) -> Result<Admitted, Status> {
        let peer = request.extensions().get::<Peer>();
        let key = request.metadata().get(KEY_HEADER).and_then(|key| key.to_str().ok());
        let identity = peer.and_then(Peer::identity);
        self.access.admit(identity, key, needed).map_err(|denied| {
            let address = peer.map(|peer| peer.address.to_string()).unwrap_or_default();
            let shown = identity.map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%address, identity = %shown, reason = denied.label(), "an operator was turned away");
            let code = if denied == Denied::Role { Code::PermissionDenied } else { Code::Unauthenticated };
            reasoned(code, denied.to_string(), "not_allowed")
        })
    }

    fn environment(&self, name: &str) -> Result<&Arc<Environment>, Status> {
        self.admin.environment(name).map_err(|refusal| status(&refusal))
    }
}

/// A refusal as a status.
fn status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::UnknownEnvironment { .. } | Refusal::NotFound { .. } | Refusal::NoSuchHold(_) => {
            Code::NotFound
        }
        Refusal::BadRequest(_) | Refusal::Invalid(_) | Refusal::TooLarge(_) => Code::InvalidArgument,
        Refusal::InUse { .. }
        | Refusal::Peers(_)
        | Refusal::NoRecorder(_)
        | Refusal::Node(_)
        | Refusal::BackendRefused(_) => Code::FailedPrecondition,
        Refusal::Conflict { .. } | Refusal::Contended { .. } => Code::Aborted,
        Refusal::NotComplete { .. } | Refusal::Degraded(_) | Refusal::Unavailable(_) => Code::Unavailable,
        Refusal::ReadOnly(_) => Code::ResourceExhausted,
        Refusal::OutcomeUnknown(_) => Code::Unknown,
    };
    reasoned(code, refusal.to_string(), refusal.word())
}

fn bad_request(sentence: String) -> Status {
    status(&Refusal::BadRequest(sentence))
}

fn reasoned(code: Code, sentence: String, word: &'static str) -> Status {
    let mut trailers = MetadataMap::new();
    trailers.insert(REASON_TRAILER, MetadataValue::from_static(word));
    Status::with_metadata(code, sentence, trailers)
}
