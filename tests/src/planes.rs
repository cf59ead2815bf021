//! The two planes as real processes, with short times, on addresses and folders that survive a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::eventually::eventually;
use crate::http;
use crate::keys::Keys;
use crate::ports;
use crate::process::{Process, Program};

/// How long a plane may take for what a test expects of it, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);
/// `liveness_timeout` of every replica here.
pub const LIVENESS: Duration = Duration::from_secs(2);
/// The path of the second hop's stream.
pub const SYNC: &str = "/headwater.config.v1.Config/Sync";
/// The path of etcd's watch streams.
pub const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// A replica of one environment, `default` at `/apisix`.
#[derive(Debug)]
pub struct Replica {
    /// The process.
    pub process: Process,
    /// `host:port` for nodes.
    pub southbound: String,
    /// `host:port` for operators.
    pub admin: String,
    /// `host:port` of health, status and metrics.
    pub health: String,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// The process.
    pub process: Process,
    /// `host:port` of plain requests.
    pub http: String,
    /// `host:port` of requests over TLS.
    pub https: String,
    /// `host:port` of health, status and metrics.
    pub health: String,
    /// `host:port` of dumps.
    pub control: String,
}

/// What a node shows of itself, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The applied version's revision.
    pub revision: u64,
    /// Its digest.
    pub digest: String,
    /// Key to mod revision.
    pub content: BTreeMap<String, u64>,
    /// Key to value, as it is shown: secrets are redacted.
    pub values: BTreeMap<String, Value>,
}

// === impl Replica ===

impl Replica {
    /// Starts one on an etcd at `http://host:port`; its folder is `<folder>/<id>`.
    ///
    /// # Panics
    /// When the folder cannot be written or the binary does not start.
    #[must_use]
    pub fn start(folder: &Path, id: &str, etcd: &str, more: &[&str]) -> Self {
        let [southbound, admin, health] = addresses();
        let state = make(folder, id);
        let text = format!(
            "replica_id: {id}\nstate_dir: {}\nstart_deadline: 5s\n\
             etcd: {{endpoints: ['{etcd}'], progress_interval: 500ms, liveness_timeout: {}s, \
             catch_up_timeout: 5s, connect_timeout: 2s, request_timeout: 3s}}\n\
             southbound: {{listen: '{southbound}', insecure: true, heartbeat: 1s}}\n\
             admin: {{listen: '{admin}', insecure: true}}\nhealth: {{listen: '{health}'}}\n",
            state.display(),
            LIVENESS.as_secs()
        );
        let process = start("headwater-control-plane", &state, &text, more);
        Self { process, southbound, admin, health }
    }

    /// Its `/status/config`, the part of the one environment.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<Value> {
        let mut status = page(&self.health, "/status/config").await?;
        Ok(status["environments"][0].take())
    }

    /// The sum of a metric over its labels; nothing when it is not there.
    ///
    /// # Panics
    /// When the replica does not answer.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(&self.health, name).await
    }

    /// As [`metric`](Self::metric), of one that is not there at all before its first count.
    ///
    /// # Panics
    /// When the replica does not answer.
    pub async fn count(&self, name: &str) -> f64 {
        sum(&metrics(&self.health).await, name)
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Panics
    /// When it does not.
    pub async fn ready(&self) {
        ready("replica", &self.health).await;
    }

    /// Waits until its status satisfies a condition; answers it.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub async fn shows(&self, what: &str, limit: Duration, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the replica shows {what}"), limit, || async {
            let status = self.status().await.map_err(|error| format!("{error:#}"))?;
            if holds(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until its source is live; answers the member it follows.
    ///
    /// # Panics
    /// When it is not within `limit`.
    pub async fn live(&self, limit: Duration) -> String {
        let status = self.shows("a live source", limit, |it| it["source"]["stage"] == "live").await;
        status["source"]["member"].as_str().expect("a live source has a member").to_owned()
    }

    /// Puts a value as an operator; answers how the command ended and what it said.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn put(&self, key: &str, value: &Value) -> (ExitStatus, String) {
        self.command(&["put", key, &value.to_string()]).await
    }

    /// Runs the operators' command against it.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn command(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let program = Program::own("headwater").args(["--server", &self.admin, "--insecure"]);
        let (status, lines) = program.args(arguments).run(LIMIT).await;
        (status, lines.join("\n"))
    }
}

// === impl Node ===

impl Node {
    /// Starts one that follows the replica at `host:port`; its folder is `<folder>/<id>`.
    ///
    /// # Panics
    /// When the folder cannot be written or the binary does not start.
    #[must_use]
    pub fn start(folder: &Path, id: &str, replica: &str, more: &[&str]) -> Self {
        let [http, https, health, control] = addresses();
        let data = make(folder, id);
        let text = format!(
            "node_id: {id}\ndata_dir: {}\ncontrol_plane: {{addresses: ['{replica}'], insecure: true}}\n\
             sync: {{backoff_initial: 100ms, backoff_cap: 500ms, persist_interval: 20ms}}\n\
             proxy: {{http: ['{http}'], https: ['{https}'], access_log: {{to: 'off'}}}}\n\
             listen: {{health: '{health}', control: '{control}'}}\n",
            data.display()
        );
        let process = start("headwater-data-plane", &data, &text, more);
        Self { process, http, https, health, control }
    }

    /// Its `/status/config`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<Value> {
        page(&self.health, "/status/config").await
    }

    /// What it holds, with the version, read at one moment.
    ///
    /// # Errors
    /// When it does not answer, or holds nothing.
    pub async fn held(&self) -> Result<Held> {
        // With an unoptimized node and tens of thousands of resources this takes its time.
        let answer = http::get_within(&self.control, "/config_dump", LIMIT).await?;
        let dump = document("/config_dump", answer)?;
        let resources = dump["resources"].as_array().context("a dump has resources")?;
        let pairs =
            resources.iter().map(|it| Some((it["key"].as_str()?.to_owned(), it["mod_revision"].as_u64()?)));
        let digest = dump["version"]["digest"].as_str().context("nothing is held")?.to_owned();
        let revision = dump["version"]["revision"].as_u64().context("nothing is held")?;
        let content = pairs.collect::<Option<_>>().context("a resource without key or revision")?;
        let values = resources.iter().map(|it| Some((it["key"].as_str()?.to_owned(), it["value"].clone())));
        let values = values.collect::<Option<_>>().context("a resource without key")?;
        Ok(Held { revision, digest, content, values })
    }

    /// Asks for a path as a client would.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        http::get(&self.http, path).await
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Panics
    /// When it does not.
    pub async fn ready(&self) {
        ready("node", &self.health).await;
    }

    /// Waits until a path answers this status and, unless it is empty, this body.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub async fn answers(&self, path: &str, status: u16, body: &str, limit: Duration) {
        let what = format!("GET {path} answers {status} {body:?}");
        eventually(&what, limit, || async {
            match self.get(path).await {
                Ok((seen, text)) if seen == status && (body.is_empty() || text == body) => Ok(()),
                other => Err(other.map_err(|error| format!("{error:#}"))),
            }
        })
        .await;
    }

    /// Waits until it holds what etcd holds now; answers that.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub async fn equals(&self, keys: &Keys, limit: Duration) -> Held {
        eventually("the node holds what etcd holds", limit, || async {
            let held = self.held().await.map_err(|error| format!("{error:#}"))?;
            let there = keys.content(None).await;
            if held.content == there {
                return Ok(held);
            }
            let differ = there.iter().filter(|(key, at)| held.content.get(*key) != Some(at)).count();
            let (has, should) = (held.content.len(), there.len());
            Err(format!("{has} of {should} at {}, {differ} missing or other", held.revision))
        })
        .await
    }

    /// Waits until it has applied at least this revision; answers its status.
    ///
    /// # Panics
    /// When it does not.
    pub async fn reaches(&self, revision: u64) -> Value {
        self.shows(&format!("revision {revision} applied"), |status| {
            status["applied"]["revision"].as_u64().is_some_and(|seen| seen >= revision)
        })
        .await
    }

    /// Waits until its status satisfies a condition; answers it.
    ///
    /// # Panics
    /// When it does not.
    pub async fn shows(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the node shows {what}"), LIMIT, || async {
            let status = self.status().await.map_err(|error| format!("{error:#}"))?;
            if holds(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }
}

/// The sum of a metric over its labels. Zero when it is not there: a family shows its labels from the first count on.
async fn metric(address: &str, name: &str) -> f64 {
    let text = metrics(address).await;
    assert!(text.contains(name.trim_end_matches("_total")), "no metric {name} in {text}");
    sum(&text, name)
}

async fn metrics(address: &str) -> String {
    let (status, text) = http::get(address, "/metrics").await.expect("a plane shows metrics");
    assert_eq!(status, 200, "{text}");
    text
}

fn sum(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.sum()
}

async fn page(address: &str, path: &str) -> Result<Value> {
    document(path, http::get(address, path).await?)
}

fn document(path: &str, (status, body): (u16, String)) -> Result<Value> {
    if status != 200 {
        bail!("{path} answers {status}: {body}");
    }
    serde_json::from_str(&body).with_context(|| format!("{path} is no JSON"))
}

async fn ready(what: &str, address: &str) {
    eventually(&format!("the {what} is ready"), LIMIT, || async {
        match http::get(address, "/readyz").await {
            Ok((200, _)) => Ok(()),
            other => Err(other.map_err(|error| format!("{error:#}"))),
        }
    })
    .await;
}

fn addresses<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| format!("127.0.0.1:{}", ports::free()))
}

fn make(folder: &Path, id: &str) -> PathBuf {
    let folder = folder.join(id);
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    folder
}

fn start(binary: &str, folder: &Path, text: &str, more: &[&str]) -> Process {
    let file = folder.join("settings.yaml");
    std::fs::write(&file, text).expect("the test's folder can be written");
    let mut program = Program::own(binary).arg("--config").arg(file);
    for setting in more {
        program = program.args(["--set", setting]);
    }
    program.start()
}
