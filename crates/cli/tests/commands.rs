//! The command against a replica in this process: what it prints, and how it exits.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use headwater_control_plane::app::{self, Bound};
use headwater_control_plane::config::Config;
use headwater_process::settings::{self, Sources};
use serde_json::Value;
use tempfile::TempDir;

/// A replica on the embedded store, and where its operators connect.
struct Replica {
    bound: Option<Bound>,
    server: String,
    folder: TempDir,
}

impl Replica {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = format!(
            "replica_id: r1\nstate_dir: {0}/state\nembedded: {{directory: {0}/store}}\n\
             southbound: {{listen: '127.0.0.1:0', insecure: true, heartbeat: 100ms}}\n\
             admin: {{listen: '127.0.0.1:0', insecure: true}}\nhealth: {{listen: '127.0.0.1:0'}}\n",
            folder.path().display()
        );
        let config: Config = settings::load(Sources::new().text("test.yaml", text)).expect("sound settings");
        let bound = app::start(config).await.expect("a replica that starts");
        while !bound.readiness().report().ready {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let server = bound.addresses.admin.to_string();
        Self { bound: Some(bound), server, folder }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a writable folder");
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = headwater(&self.server).args(arguments).output().expect("the command runs");
        Ended::of(&output)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    async fn stop(&mut self) {
        let cause = self.bound.take().expect("stopped once").shutdown().await;
        assert!(cause.is_none(), "{cause:?}");
    }
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        Self {
            code: output.status.code().expect("no signal"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

fn headwater(server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.env_clear().args(["--server", server, "--insecure"]);
    command
}

const UPSTREAM: &str = r#"{"type": "roundrobin", "nodes": {"127.0.0.1:80": 1}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_is_shown_in_every_form() {
    let mut replica = Replica::start().await;
    let put = replica.run(&["put", "upstreams/1", UPSTREAM]);
    assert_eq!((put.code, put.err.as_str()), (0, ""), "{put:?}");
    assert!(put.out.starts_with("upstreams/1 created at 0."), "{put:?}");
    let again = replica.run(&["put", "upstreams/1", UPSTREAM]);
    assert_eq!(again.out, "upstreams/1 unchanged\n");

    let shown = replica.json(&["get", "upstreams/1"]);
    assert_eq!(shown["value"]["nodes"]["127.0.0.1:80"], 1);
    let yaml = replica.run(&["get", "upstreams/1", "-o", "yaml"]).out;
    let file = replica.file("back.yaml", &yaml);
    assert_eq!(replica.run(&["apply", "-f", &file]).out, "upstreams/1 unchanged\n", "{yaml}");

    let list = replica.run(&["list"]);
    assert!(
        list.out.lines().next().unwrap().starts_with("KEY") && list.out.contains("upstreams/1"),
        "{list:?}"
    );
    assert_eq!(replica.json(&["list", "routes"]), serde_json::json!([]));
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_applied_whole_or_not_at_all() {
    let mut replica = Replica::start().await;
    let good = replica.file(
        "good.yaml",
        "upstreams:\n  - {id: 1, type: roundrobin, nodes: {'127.0.0.1:80': 1}}\nroutes:\n  - {id: r, uri: /a, upstream_id: 1}\n",
    );
    let bad = replica.file("bad.json", r#"{"key": "routes/b", "value": {"uri": 5}}"#);
    let both = replica.run(&["apply", "-f", &good, "-f", &bad]);
    assert_eq!(both.code, 1, "{both:?}");
    assert!(both.err.starts_with("error: routes/b: "), "{both:?}");
    assert_eq!(replica.json(&["list"]), serde_json::json!([]));

    let checked = replica.run(&["validate", "-f", &good, "-f", &bad]);
    assert_eq!((checked.code, checked.out.contains("3 checked, 1 fault (")), (1, true), "{checked:?}");
    let applied = replica.json(&["apply", "-f", &good]);
    assert_eq!(applied["committed"].as_array().unwrap().len(), 1);
    assert_eq!(replica.run(&["validate", "--from-etcd"]).code, 0);

    let used = replica.run(&["delete", "upstreams/1"]);
    assert_eq!((used.code, used.err.contains("in use by routes/r")), (1, true), "{used:?}");
    let conflict = replica.run(&["delete", "routes/r", "--if-mod-revision", "1"]);
    assert_eq!(conflict.code, 7, "{conflict:?}");
    assert_eq!(replica.run(&["delete", "routes/r"]).code, 0);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_nodes_is_no_success_and_says_so() {
    let mut replica = Replica::start().await;
    let put = ["put", "upstreams/1", UPSTREAM, "--wait", "--timeout", "400ms", "-o", "json"];
    let ended = replica.run(&put);
    assert_eq!(ended.code, 3, "{ended:?}");
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&answer["wait"]["outcome"], &answer["wait"]["expected"]), (&"no_nodes".into(), &0.into()));
    let slow = replica.run(&["wait", "--timeout", "1500ms"]);
    assert_eq!(slow.code, 3, "{slow:?}");
    assert!(slow.err.contains("by revision alone"), "{slow:?}");
    assert!(
        slow.err.contains("\nnote") && slow.err.starts_with("no node is expected"),
        "progress, as lines: {slow:?}"
    );
    let replaced = replica.run(&["wait", "0.1", "--put", "routes/none"]);
    assert!([1, 4].contains(&replaced.code), "{replaced:?}");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_nodes_and_holds_answer_when_there_is_nothing() {
    let mut replica = Replica::start().await;
    let status = replica.run(&["status"]);
    assert!(
        status.out.contains("environment default (/apisix)") && status.out.contains("live"),
        "{status:?}"
    );
    assert_eq!(replica.json(&["status"])["environments"][0]["source"]["stage"], "live");
    assert_eq!(replica.json(&["nodes"]), serde_json::json!([]));
    assert_eq!(replica.json(&["hold", "show"])["holds"], serde_json::json!([]));
    let approve = replica.run(&["hold", "approve", "x"]);
    assert_eq!((approve.code, approve.err.contains("nothing is held")), (1, true), "{approve:?}");
    let forget = replica.run(&["nodes", "forget", "edge-1"]);
    assert_eq!((forget.code, forget.err.contains("edge-1")), (1, true), "{forget:?}");
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_come_from_standard_input_too() {
    let mut replica = Replica::start().await;
    let mut child = headwater(&replica.server)
        .args(["put", "upstreams/2", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(UPSTREAM.as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(replica.json(&["list", "upstreams"]).as_array().unwrap().len(), 1);
    replica.stop().await;
}

#[test]
fn what_can_be_told_without_a_replica_is_told_first() {
    for (arguments, code, named) in [
        (vec!["apply", "-f", "/no/such/file.yaml"], 2, "/no/such/file.yaml"),
        (vec!["put", "routes/1", "{"], 2, "the value"),
        (vec!["frobnicate"], 2, "frobnicate"),
        (vec!["status"], 5, "cannot be reached"),
    ] {
        let ended = Ended::of(&headwater("127.0.0.1:1").args(&arguments).output().unwrap());
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.err.contains(named) && ended.out.is_empty(), "{ended:?}");
    }
    let mut plain = Command::new(env!("CARGO_BIN_EXE_headwater"));
    let ended = Ended::of(&plain.env_clear().arg("status").output().unwrap());
    assert_eq!((ended.code, ended.err.contains("--cacert")), (2, true), "{ended:?}");
}
