//! etcd that asks who one is: users, roles and tokens, as an operator sets them up.

use std::path::Path;

use etcd_client::{Client, ConnectOptions, Permission};

use crate::etcd::Etcd;

/// The replica's user.
pub const USER: &str = "headwater";
/// The role that may read and write below `/apisix/`.
pub const ROLE: &str = "gateway";

/// A client with all rights, which logs in itself.
///
/// # Panics
/// When it cannot connect.
pub async fn root(etcd: &Etcd) -> Client {
    let options = ConnectOptions::new().with_user("root", "root").with_auto_token_refresh(true);
    Client::connect(etcd.endpoints(), Some(options)).await.expect("root may connect")
}

/// Makes users and roles and switches authentication on; answers a client with all rights.
///
/// # Panics
/// When etcd refuses.
pub async fn switch_on(etcd: &Etcd, password: &str) -> Client {
    let mut client = etcd.client().await;
    users(&mut client, password).await.expect("an open etcd takes users");
    client.auth_enable().await.expect("root has its role");
    root(etcd).await
}

/// Makes the users `root` and [`USER`] with their roles; asks nobody yet.
///
/// # Errors
/// When etcd refuses.
pub async fn users(client: &mut Client, password: &str) -> Result<(), etcd_client::Error> {
    client.user_add("root", "root", None).await?;
    client.user_grant_role("root", "root").await?;
    client.user_add(USER, password, None).await?;
    client.role_add(ROLE).await?;
    client.role_grant_permission(ROLE, Permission::read_write("/apisix/").with_prefix()).await?;
    client.user_grant_role(USER, ROLE).await?;
    Ok(())
}

/// Flags for tokens that end after so many seconds: `simple`, or `jwt` with a key made in `folder`.
///
/// # Panics
/// When the key cannot be written.
#[must_use]
pub fn short_tokens(kind: Tokens, folder: &Path, seconds: u32) -> Vec<String> {
    let token = match kind {
        Tokens::Simple => "simple".to_owned(),
        Tokens::Jwt => {
            let key = rcgen::KeyPair::generate().expect("ring makes keys");
            let (public, private) = (folder.join("public.pem"), folder.join("private.pem"));
            std::fs::write(&public, key.public_key_pem()).expect("the test's folder can be written");
            std::fs::write(&private, key.serialize_pem()).expect("the test's folder can be written");
            let (public, private) = (public.display(), private.display());
            format!("jwt,pub-key={public},priv-key={private},sign-method=ES256,ttl={seconds}s")
        }
    };
    ["--auth-token", &token, "--auth-token-ttl", &seconds.to_string()].map(str::to_owned).to_vec()
}

/// The two kinds of etcd's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// In the memory of the member that gave it.
    Simple,
    /// Signed, good for every member.
    Jwt,
}
