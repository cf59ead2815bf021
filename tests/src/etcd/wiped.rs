//! Members that lose their data directory.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};

use super::{Etcd, Formation, START};
use crate::eventually::eventually;
use crate::ports;

/// How long one question to the others may take: what one of them was asked while there was no leader, it may never
/// answer.
const ASKED: Duration = Duration::from_secs(2);

// === impl Etcd ===

impl Etcd {
    /// Kills all members, removes their data and starts them as new ones: the same ids, and nothing in it.
    ///
    /// # Panics
    /// When they do not become healthy.
    pub async fn wipe(&mut self) {
        self.kill();
        for member in &mut self.members {
            std::fs::remove_dir_all(&member.data).expect("a killed member's data can be removed");
            member.process.restart();
        }
        self.tell_links();
        self.ready().await;
    }

    /// Kills all members, removes their data and starts them as another cluster, on the same addresses.
    ///
    /// # Panics
    /// As [`Etcd::wipe`].
    pub async fn wipe_as_another(&mut self) {
        self.kill();
        self.token = format!("token-{}", ports::free());
        let cluster = self.initial_cluster();
        let (options, token) = (&self.options, &self.token);
        let formation = Formation { options, token, cluster: &cluster, state: "new" };
        for member in &mut self.members {
            std::fs::remove_dir_all(&member.data).expect("a killed member's data can be removed");
            member.process = formation.program_of(member).start();
        }
        self.tell_links();
        self.ready().await;
    }

    /// Kills a member and removes its data; then the others let it go and take it in again, as an operator would do.
    /// It comes back on the same addresses, under another member id.
    ///
    /// # Panics
    /// When the others refuse, or it does not become healthy.
    pub async fn replace(&mut self, index: usize) {
        self.members[index].process.kill();
        std::fs::remove_dir_all(&self.members[index].data).expect("a killed member's data can be removed");
        let (name, advertised) =
            (self.members[index].name.clone(), format!("http://{}", self.members[index].advertised));
        let mut others = self.endpoints();
        others.remove(index);
        let options = ConnectOptions::new().with_connect_timeout(ASKED).with_timeout(ASKED);
        let client = Client::connect(others, Some(options)).await.expect("a client connects to the others");
        // Members refuse while one of those that remain has been connected for less than five seconds.
        eventually("the others let the member go", START, || async {
            let mut cluster = client.cluster_client();
            let list = cluster.member_list().await?;
            match list.members().iter().find(|member| member.name() == name) {
                Some(member) => cluster.member_remove(member.id()).await.map(drop),
                None => Ok(()),
            }
        })
        .await;
        eventually("the others take it in again", START, || async {
            client.cluster_client().member_add([advertised.clone()], None).await
        })
        .await;
        let cluster = self.initial_cluster();
        let (options, token) = (&self.options, &self.token);
        let formation = Formation { options, token, cluster: &cluster, state: "existing" };
        self.members[index].process = formation.program_of(&self.members[index]).start();
        self.tell_links();
        self.ready().await;
    }
}
