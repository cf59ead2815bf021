use headwater_process::settings::{self, Sources};

use super::*;

fn load(text: &str) -> Result<Config, Vec<String>> {
    let sources = Sources::new().text("cp.yaml", text);
    settings::load(sources).map_err(|faults| faults.0.into_iter().map(|fault| fault.path).collect())
}

const PLAIN: &str = "embedded: {}\nsouthbound: {insecure: true}\nadmin: {insecure: true}\n";

#[test]
fn defaults_are_those_of_the_design() {
    let config = load(PLAIN).unwrap();
    assert_eq!(config.southbound.listen.to_string(), "0.0.0.0:9190");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9180");
    assert_eq!(config.health.listen.to_string(), "0.0.0.0:9181");
    assert_eq!(config.southbound.heartbeat, Duration::from_secs(10));
    assert_eq!(config.lost_retention, Duration::from_secs(3600));
    assert_eq!(config.approval_retention, Duration::from_secs(30 * 86_400));
    assert_eq!(
        (config.environments[0].name.as_str(), config.environments[0].prefix.as_str()),
        ("default", "/apisix")
    );
}

#[test]
fn without_a_word_about_it_nothing_is_plain_text_and_nobody_may_anything() {
    let paths = load("embedded: {}").unwrap_err();
    assert_eq!(paths, ["southbound.tls", "environments[0].join", "admin.tls", "admin.callers"]);
}

#[test]
fn one_source_is_needed_and_only_one() {
    assert_eq!(load("southbound: {insecure: true}\nadmin: {insecure: true}").unwrap_err(), [""]);
    let both = format!("{PLAIN}etcd: {{endpoints: ['http://127.0.0.1:2379']}}\n");
    assert_eq!(load(&both).unwrap_err(), ["embedded"]);
}

#[test]
fn nested_prefixes_are_refused_and_neighbours_are_not() {
    let with = |prefixes: &[&str]| {
        let list: Vec<String> = prefixes
            .iter()
            .enumerate()
            .map(|(position, prefix)| format!("  - {{name: e{position}, prefix: '{prefix}'}}\n"))
            .collect();
        load(&format!("{PLAIN}environments:\n{}", list.concat()))
    };
    assert!(with(&["/apisix", "/apisix2", "/a/b", "/a/c"]).is_ok());
    for nested in [["/apisix", "/apisix/b"], ["/a/b", "/a"], ["/a", "/a"]] {
        assert_eq!(with(&nested).unwrap_err(), ["environments[1].prefix"], "{nested:?}");
    }
    for wrong in ["apisix", "/apisix/", "/", "", "/a//b"] {
        assert_eq!(with(&[wrong]).unwrap_err(), ["environments[0].prefix"], "{wrong:?}");
    }
}

#[test]
fn all_faults_are_told_at_once_unknown_keys_too() {
    let text = "
embedded: {}
southbound: {insecure: true, heartbeat: 1ms}
admin:
  insecure: true
  callers:
    - {name: ops, role: admin}
    - {name: ops, role: viewer, key: short}
    - {name: x, role: admin, identity: ops.example}
environments:
  - {name: 'a b', prefix: /a, join: {tokens: [{name: t, token: '0123456789abcdef'}]}}
  - {name: c, prefix: /c, join: {tokens: [{name: t, token: '0123456789abcdef'}]}}
data_encryption: {keyring: [abc]}
";
    assert_eq!(
        load(text).unwrap_err(),
        [
            "environments[0].name",
            "environments[1].join.tokens[0].token",
            "admin.callers[0]",
            "admin.callers[1].name",
            "admin.callers[1].key",
            "admin.callers[2].identity",
            "southbound.heartbeat",
            "data_encryption.keyring",
        ]
    );
    assert_eq!(load(&format!("{PLAIN}sothbound: {{}}\n")).unwrap_err(), ["sothbound"]);
}

#[test]
fn secrets_are_not_shown() {
    let text = format!("{PLAIN}data_encryption: {{keyring: [0123456789abcdef]}}\n");
    let shown = settings::dump(&load(&text).unwrap());
    assert!(!shown.contains("0123456789abcdef") && shown.contains("redacted"), "{shown}");
}

#[test]
fn keys_of_the_state_are_read_and_all_their_faults_told_at_once() {
    let with = |keys: &str| load(&format!("{PLAIN}state_encryption: {{keys: {keys}}}\n"));
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let config = with(&format!("[{{key: {key}}}]")).unwrap();
    assert_eq!(config.state_keys().unwrap().first(), Keys::new([[1; 32]]).first());
    assert!(!settings::dump(&config).contains(key));
    let faults = with(&format!("[{{key: {key}}}, {{key: short}}, {{file: /no/such/key}}, {{key: {key}}}]"));
    assert_eq!(
        faults.unwrap_err(),
        ["state_encryption.keys[1].key", "state_encryption.keys[2].file", "state_encryption.keys[3]"]
    );
    assert_eq!(with("[{path: /x}]").unwrap_err(), ["state_encryption.keys[0].path"]);
}

/// The example's section on encryption, which is a comment there.
const ENCRYPTION: &str = "# state_encryption:\n#   keys:\n#     - {file: /etc/headwater/state.key}\n";

#[test]
fn the_production_example_loads_and_its_encryption_can_be_taken_in() {
    let example = include_str!("../../../deploy/control-plane.yaml");
    let config = load(example).unwrap();
    assert_eq!(config.etcd.map(|etcd| etcd.endpoints.len()), Some(3));
    assert!(!config.admin.insecure && !config.southbound.insecure && config.state_encryption.keys.is_empty());
    let encrypted = example.replace(ENCRYPTION, &ENCRYPTION.replace("# ", "").replace('#', ""));
    assert_eq!(load(&encrypted).unwrap_err(), ["state_encryption.keys[0].file"]);
}
