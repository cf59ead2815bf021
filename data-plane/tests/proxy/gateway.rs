//! A gateway under test, and what its tests share.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use headwater_data_plane::proxy::config::{AccessLogTarget, ProxyConfig};
use headwater_data_plane::proxy::metrics::ProxyMetrics;
use headwater_data_plane::proxy::{Configuration, Proxy, Serving};
use headwater_data_plane::upstream::Upstreams;
use headwater_data_plane::upstream::resolver::{Lookup, SystemLookup};
use headwater_process::drain::{self, DrainTrigger};
use headwater_process::{Policy, Supervisor};
use serde_json::{Value, json};

use crate::tables;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A running gateway. Dropping it ends its tasks.
pub(crate) struct Gateway {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) metrics: ProxyMetrics,
    pub(crate) supervisor: Supervisor,
    pub(crate) trigger: Option<DrainTrigger>,
    configuration: Configuration,
    folder: tempfile::TempDir,
}

impl Gateway {
    /// A gateway with these resources, with default settings.
    pub(crate) async fn start(resources: &[(&str, Value)]) -> Self {
        Self::start_with(resources, |_| {}, Arc::new(SystemLookup::default())).await
    }

    /// The same with settings of its own.
    pub(crate) async fn start_set(resources: &[(&str, Value)], set: impl FnOnce(&mut ProxyConfig)) -> Self {
        Self::start_with(resources, set, Arc::new(SystemLookup::default())).await
    }

    /// The same with a resolver of its own.
    pub(crate) async fn start_with(
        resources: &[(&str, Value)],
        set: impl FnOnce(&mut ProxyConfig),
        lookup: Arc<dyn Lookup>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = ProxyConfig { http: vec![any], https: vec![any], ..ProxyConfig::default() };
        config.access_log.to = AccessLogTarget::File(folder.path().join("access.log"));
        set(&mut config);
        assert_eq!(config.validate(), Vec::<String>::new());
        let supervisor = Supervisor::new("gateway under test");
        let upstreams = Upstreams::new(supervisor.clone(), lookup, config.resolver.clone()).unwrap();
        let metrics = ProxyMetrics::default();
        let configuration = Configuration::default();
        let bound = Proxy::bind(&config, Arc::clone(&configuration), Arc::clone(&upstreams), metrics.clone())
            .unwrap();
        let (http, https) = (bound.http_addresses()[0], bound.https_addresses()[0]);
        let (trigger, watcher) = drain::drain();
        bound.serve(&supervisor, &watcher);
        let trigger = Some(trigger);
        let gateway = Self { http, https, upstreams, metrics, supervisor, trigger, configuration, folder };
        if !resources.is_empty() {
            gateway.apply(resources);
        }
        gateway
    }

    /// Swaps in a configuration of these resources.
    pub(crate) fn apply(&self, resources: &[(&str, Value)]) {
        let table = tables::compile(resources, &self.upstreams);
        self.configuration.store(Some(Arc::new(Serving { table, version: Some("7".into()) })));
    }

    /// The first `count` access log lines, once they are written.
    pub(crate) async fn log(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path().join("access.log");
        eventually(|| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            (lines.len() >= count).then_some(lines)
        })
        .await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.supervisor.cancel();
    }
}

/// Spawns a task of a test.
pub(crate) fn spawn(supervisor: &Supervisor, task: impl Future<Output = ()> + Send + 'static) {
    supervisor.spawn("test", Policy::best_effort().dropped_on_cancel(), task);
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    tokio::time::timeout(DEADLINE, async {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it never came about")
}

/// A route of every path to these nodes.
pub(crate) fn route_to(nodes: &[SocketAddr]) -> Value {
    let nodes: serde_json::Map<String, Value> =
        nodes.iter().map(|node| (node.to_string(), json!(1))).collect();
    json!({ "uri": "/*", "upstream": { "nodes": nodes } })
}

/// A route of every path to these nodes, with more said about the upstream.
pub(crate) fn route_with(nodes: &[SocketAddr], more: &Value) -> Value {
    let mut route = route_to(nodes);
    for (name, value) in more.as_object().unwrap() {
        route["upstream"][name] = value.clone();
    }
    route
}

type Script = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// A resolver that answers as the test says.
pub(crate) struct Scripted(pub(crate) Box<Script>);

impl Lookup for Scripted {
    fn lookup(&self, name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let answer = (self.0)(name);
        Box::pin(async move { answer })
    }
}
