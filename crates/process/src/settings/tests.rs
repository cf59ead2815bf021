use std::time::Duration;

use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Deserialize, Serialize, Default)]
#[serde(default)]
struct Plane {
    listen: Listen,
    etcd: Etcd,
    environments: Vec<Environment>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Listen {
    port: u16,
    #[serde(with = "duration")]
    heartbeat: Duration,
    #[serde(with = "byte_size")]
    body_max: usize,
}

#[derive(Debug, PartialEq, Deserialize, Serialize, Default)]
#[serde(default)]
struct Etcd {
    user: String,
    password: Option<Secret<String>>,
    endpoints: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Environment {
    prefix: String,
    #[serde(default)]
    limit: u32,
}

impl Default for Listen {
    fn default() -> Self {
        Self { port: 9190, heartbeat: Duration::from_secs(10), body_max: 1 << 20 }
    }
}

impl Settings for Plane {
    fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.listen.heartbeat < Duration::from_secs(1) {
            faults.push(Fault::new("listen.heartbeat", "is below 1s: raise it"));
        }
        if self.etcd.user.is_empty() && self.etcd.password.is_some() {
            faults.push(Fault::new("etcd.user", "lacks beside a password: set it"));
        }
        faults
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn faults(sources: Sources) -> Vec<String> {
    load::<Plane>(sources).expect_err("faults").0.iter().map(ToString::to_string).collect()
}

#[test]
fn no_source_is_all_defaults() {
    assert_eq!(load::<Plane>(Sources::new()).unwrap(), Plane::default());
    assert_eq!(load::<Plane>(Sources::new().text("empty.yaml", "# nothing\n")).unwrap(), Plane::default());
}

#[test]
fn argument_over_variable_over_file() {
    let text = "listen: {port: 1, heartbeat: 2s, body_max: 64KiB}\nenvironments: [{prefix: /a}]\n";
    let sources = Sources::new()
        .text("plane.yaml", text)
        .environment(variables(&[
            ("HEADWATER__LISTEN__PORT", "2"),
            ("HEADWATER__LISTEN__HEARTBEAT", "3s"),
            ("HEADWATER__ETCD__ENDPOINTS", "[http://a:1, http://b:2]"),
            ("HEADWATER__ENVIRONMENTS__0__LIMIT", "9"),
            ("HEADWATER_OTHER", "left alone"),
        ]))
        .set(["listen.port=3".to_owned(), "etcd.user=root=1".to_owned()]);
    let plane: Plane = load(sources).unwrap();
    assert_eq!(plane.listen, Listen { port: 3, heartbeat: Duration::from_secs(3), body_max: 65_536 });
    assert_eq!(plane.etcd.endpoints, ["http://a:1", "http://b:2"]);
    assert_eq!(plane.etcd.user, "root=1");
    assert_eq!(plane.environments, [Environment { prefix: "/a".into(), limit: 9 }]);
}

#[test]
fn a_string_that_looks_like_a_number_stays_a_string() {
    let sources = Sources::new().environment(variables(&[
        ("HEADWATER__ETCD__USER", "0123"),
        ("HEADWATER__ETCD__PASSWORD", "{1: odd"),
    ]));
    let plane: Plane = load(sources).unwrap();
    assert_eq!(plane.etcd.user, "0123");
    assert_eq!(plane.etcd.password.unwrap().expose(), "{1: odd");
}

#[test]
fn all_faults_of_a_file_at_once() {
    let text = "\
listen:
  port: many
  heartbeat: 5
  hartbeat: 5s
etcd:
  endpoints: nowhere
environments:
  - {prefix: /a, limit: x}
  - {limit: 1}
  - {prefix: /c, limit: -1, colour: red}
  - {prefix: /d, limit: y}
listn: {}
";
    let found = faults(Sources::new().text("plane.yaml", text).set(["listen.body_max=lots".to_owned()]));
    let expected = [
        ("listen.port: invalid type: string \"many\", expected u16", "(from plane.yaml)"),
        ("listen.heartbeat: \"5\" is not a duration", "(from plane.yaml)"),
        ("listen.body_max: \"lots\" is not a size", "(from --set listen.body_max)"),
        ("listen.hartbeat: is not a known key", "known here: body_max, heartbeat, port (from plane.yaml)"),
        ("etcd.endpoints: invalid type", "(from plane.yaml)"),
        ("environments[0].limit: invalid type", ""),
        ("environments[1].prefix: is required", ""),
        ("environments[2].limit: invalid value", ""),
        ("environments[2].colour: is not a known key", ""),
        ("environments[3].limit: invalid type", ""),
        ("listn: is not a known key", "known here: environments, etcd, listen (from plane.yaml)"),
    ];
    for (start, end) in expected {
        let matching = found.iter().filter(|it| it.starts_with(start) && it.ends_with(end)).count();
        assert_eq!(matching, 1, "{start:?} .. {end:?} in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn checks_name_where_the_value_came_from() {
    let sources = Sources::new()
        .text("plane.yaml", "etcd: {password: x}")
        .environment(variables(&[("HEADWATER__LISTEN__HEARTBEAT", "10ms")]));
    assert_eq!(
        faults(sources),
        [
            "listen.heartbeat: is below 1s: raise it (from environment variable HEADWATER__LISTEN__HEARTBEAT)",
            "etcd.user: lacks beside a password: set it (from plane.yaml)",
        ]
    );
}

#[test]
fn bad_sources_are_named() {
    let found = faults(Sources::new().text("plane.yaml", "listen: [1\nx: }"));
    assert!(
        found[0].starts_with("the file is not YAML (") && found[0].ends_with("(from plane.yaml)"),
        "{found:?}"
    );
    assert!(found[0].contains("line"), "{found:?}");
    let found = faults(Sources::new().text("plane.yaml", "- a\n- b\n"));
    assert!(found[0].contains("not a mapping"), "{found:?}");
    let found = faults(Sources::new().text("plane.yaml", "etcd: {user: a}\netcd: {user: b}\n"));
    assert!(found[0].contains("duplicate"), "{found:?}");
    let found = faults(Sources::new().set(["listen".to_owned(), "environments.7.prefix=/a".to_owned()]));
    assert_eq!(found.len(), 2, "{found:?}");
    let missing = Sources::new().file(Path::new("/no/such/plane.yaml")).expect_err("no such file");
    assert!(missing.to_string().contains("/no/such/plane.yaml"), "{missing}");
}

#[test]
fn secrets_are_never_shown() {
    let sources = Sources::new().set(["etcd.user=root".to_owned(), "etcd.password=hunter2".to_owned()]);
    let plane: Plane = load(sources).unwrap();
    for shown in [dump(&plane), format!("{plane:?}")] {
        assert!(shown.contains("[redacted]") && !shown.contains("hunter2"), "{shown}");
    }
    assert!(dump(&plane).contains("heartbeat: 10s"), "{}", dump(&plane));
}
