//! The view of a running environment.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::{EnvironmentState, EnvironmentView, HeldJump};
use crate::environment::Environment;

#[async_trait]
impl EnvironmentView for Environment {
    fn name(&self) -> &Arc<str> {
        Self::name(self)
    }

    fn state(&self) -> EnvironmentState {
        let shown = self.publication();
        let hold = shown.hold.as_ref().map(|hold| HeldJump {
            from: shown.serving.version().clone(),
            to: shown.world.version().clone(),
            since_unix: hold.since_unix,
            removal: hold.removal,
            rejected: hold.rejected,
        });
        let now = self.clock().now();
        EnvironmentState {
            complete: shown.complete,
            world: (*shown.world).clone(),
            served: shown.serving.version().clone(),
            source: shown.source.clone(),
            proof_age: shown.last_proof.map(|_| shown.proof_age(now)),
            hold,
            approvals: shown.approvals.to_vec(),
            ignored: shown.ignored.clone(),
        }
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        Self::wakes(self)
    }

    async fn reject_hold(&self) -> bool {
        Self::reject_hold(self).await
    }
}
