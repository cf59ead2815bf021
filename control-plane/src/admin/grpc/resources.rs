//! `Resources`: read, write, validate.

use headwater_model::Kind;
use headwater_proto::admin as wire;
use headwater_proto::admin::resources_server::Resources;
use tonic::{Request, Response, Status};

use super::{Shared, bad_request, convert, status};
use crate::admin::access::Role;
use crate::admin::validation;
use crate::admin::writing::Write;

#[tonic::async_trait]
impl Resources for Shared {
    async fn get(&self, request: Request<wire::GetRequest>) -> Result<Response<wire::GetResponse>, Status> {
        let role = self.admit(&request, Role::Viewer)?.role;
        let request = request.into_inner();
        let environment = self.environment(&request.environment)?;
        let key = convert::key(&request.key)?;
        let read = environment.get(&key, role).await.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(wire::GetResponse {
            resource: Some(convert::resource(read.answer)),
            version: Some(convert::version(&read.version)),
            stale: read.stale.unwrap_or_default(),
            held: read.held.unwrap_or_default(),
        }))
    }

    async fn list(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<wire::ListResponse>, Status> {
        let role = self.admit(&request, Role::Viewer)?.role;
        let request = request.into_inner();
        let environment = self.environment(&request.environment)?;
        let kind = kind(&request.kind)?;
        let after = Some(request.after.as_str()).filter(|after| !after.is_empty());
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let read = environment.list(kind, after, limit, role).await.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(wire::ListResponse {
            resources: read.answer.resources.into_iter().map(convert::resource).collect(),
            version: Some(convert::version(&read.version)),
            next: read.answer.next.map(|key| key.to_string()).unwrap_or_default(),
            total: read.answer.total as u64,
            stale: read.stale.unwrap_or_default(),
            held: read.held.unwrap_or_default(),
        }))
    }

    async fn put(&self, request: Request<wire::PutRequest>) -> Result<Response<wire::WriteResponse>, Status> {
        self.admit(&request, Role::Admin)?;
        let wire::PutRequest { environment, key, value, if_mod_revision } = request.into_inner();
        let write = convert::write(wire::Write { key, value: Some(value), if_mod_revision })?;
        self.write(&environment, vec![write], false).await
    }

    async fn delete(
        &self,
        request: Request<wire::DeleteRequest>,
    ) -> Result<Response<wire::WriteResponse>, Status> {
        self.admit(&request, Role::Admin)?;
        let wire::DeleteRequest { environment, key, if_mod_revision } = request.into_inner();
        let write = convert::write(wire::Write { key, value: None, if_mod_revision })?;
        self.write(&environment, vec![write], false).await
    }

    async fn apply(
        &self,
        request: Request<wire::ApplyRequest>,
    ) -> Result<Response<wire::WriteResponse>, Status> {
        self.admit(&request, Role::Admin)?;
        let wire::ApplyRequest { environment, writes, batches } = request.into_inner();
        self.write(&environment, convert::writes(writes)?, batches).await
    }

    async fn validate(
        &self,
        request: Request<wire::ValidateRequest>,
    ) -> Result<Response<wire::ValidateResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        let request = request.into_inner();
        let environment = self.environment(&request.environment)?;
        let writes = convert::writes(request.writes)?;
        let (mut faults, state) = environment.check(&writes).await.map_err(|refusal| status(&refusal))?;
        let mut checked = writes.len();
        if request.stored {
            faults.extend(validation::of_content(state.world.content(), environment.context()));
            checked += state.world.content().len();
        }
        Ok(Response::new(wire::ValidateResponse {
            faults: faults.into_iter().map(convert::fault).collect(),
            checked: checked as u64,
            version: Some(convert::version(state.world.version())),
        }))
    }
}

// === impl Shared ===

impl Shared {
    async fn write(
        &self,
        environment: &str,
        writes: Vec<Write>,
        batches: bool,
    ) -> Result<Response<wire::WriteResponse>, Status> {
        let environment = self.environment(environment)?;
        let written = environment.write(writes, batches).await.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(convert::written(written)))
    }
}

fn kind(name: &str) -> Result<Option<Kind>, Status> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    found.map(Some).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        bad_request(format!("{name:?} is no kind: use one of {}", known.join(", ")))
    })
}
