//! What types cannot say about the settings: each fault one sentence with the cure.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_process::settings::Fault;
use headwater_tls::ServerFiles;

use super::{AdminConfig, Config, EnvironmentConfig};

/// The shortest key or token: what can be guessed is no proof.
const MIN_SECRET: usize = 16;

pub(super) fn all(config: &Config) -> Vec<Fault> {
    let mut faults = Vec::new();
    source(config, &mut faults);
    environments(&config.environments, &mut faults);
    southbound(config, &mut faults);
    admin(&config.admin, &mut faults);
    durations(config, &mut faults);
    if config.replica_id.as_ref().is_some_and(String::is_empty) {
        faults.push(Fault::new("replica_id", "is empty: give the replica a name, or leave the key out"));
    }
    if let Err(encryption) = config.state_keys() {
        faults.extend(encryption);
    }
    if let Err(error) = config.keyring() {
        faults.push(Fault::new("data_encryption.keyring", error.to_string()));
    }
    if let Err(error) = config.log.check() {
        faults.push(Fault::new("log.filter", error.to_string()));
    }
    faults
}

fn source(config: &Config, faults: &mut Vec<Fault>) {
    match (&config.etcd, &config.embedded) {
        (None, None) => {
            let message = "no source is given: write an `etcd` section with `endpoints`, or an `embedded` section \
                           to keep the configuration in files of this replica";
            faults.push(Fault::new("", message));
        }
        (Some(_), Some(_)) => {
            faults.push(Fault::new("embedded", "stands beside `etcd`: keep the one source that is meant"));
        }
        (Some(etcd), None) => faults.extend(etcd.check("etcd")),
        (None, Some(embedded)) => {
            if embedded.directory.as_os_str().is_empty() {
                faults
                    .push(Fault::new("embedded.directory", "is empty: name the folder of the store's files"));
            }
            if !config.peers.is_empty() {
                let message =
                    "cannot be used with `embedded`, which is one replica's own: use etcd for several";
                faults.push(Fault::new("peers", message));
            }
        }
    }
}

fn environments(environments: &[EnvironmentConfig], faults: &mut Vec<Fault>) {
    if environments.is_empty() {
        faults.push(Fault::new("environments", "is empty: name at least one, with name and prefix"));
    }
    let mut names = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for (position, environment) in environments.iter().enumerate() {
        let path = format!("environments[{position}]");
        if !is_name(&environment.name) {
            let message =
                format!("{:?} is no name: use letters, digits, - and _ (at most 64)", environment.name);
            faults.push(Fault::new(format!("{path}.name"), message));
        }
        if !names.insert(&environment.name) {
            let message =
                format!("{:?} is taken by an earlier environment: choose another", environment.name);
            faults.push(Fault::new(format!("{path}.name"), message));
        }
        prefix(&path, environment, &environments[..position], faults);
        let mut token_names = BTreeSet::new();
        for (position, token) in environment.join.tokens.iter().enumerate() {
            let path = format!("{path}.join.tokens[{position}]");
            if token.token.expose().chars().count() < MIN_SECRET {
                faults.push(Fault::new(format!("{path}.token"), too_short()));
            }
            if !tokens.insert(token.token.expose()) {
                let message = "is used twice: give each environment and name a token of its own";
                faults.push(Fault::new(format!("{path}.token"), message));
            }
            if token.name.is_empty() || !token_names.insert(&token.name) {
                let message = "is empty or used twice: it is what logs and rows call the token";
                faults.push(Fault::new(format!("{path}.name"), message));
            }
        }
    }
}

fn prefix(
    path: &str,
    environment: &EnvironmentConfig,
    earlier: &[EnvironmentConfig],
    faults: &mut Vec<Fault>,
) {
    let own = environment.prefix.as_str();
    let path = format!("{path}.prefix");
    if !own.starts_with('/') || own.ends_with('/') || own.contains("//") {
        let message =
            format!("{own:?} is no prefix: begin it with one slash and end it without, such as /apisix");
        faults.push(Fault::new(path, message));
        return;
    }
    let holds =
        |outer: &str, inner: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    for other in earlier {
        let nested = holds(&other.prefix, own) || holds(own, &other.prefix) || own == other.prefix;
        if nested {
            let message = format!(
                "{own:?} and the prefix {:?} of {} lie in each other: one would read the other's keys, use separate ones",
                other.prefix, other.name
            );
            faults.push(Fault::new(path.clone(), message));
        }
    }
}

fn southbound(config: &Config, faults: &mut Vec<Fault>) {
    let southbound = &config.southbound;
    transport("southbound", southbound.tls.as_ref(), southbound.insecure, faults);
    if southbound.max_nodes == 0 {
        faults.push(Fault::new("southbound.max_nodes", "is 0: no node could join, raise it"));
    }
    if southbound.insecure {
        return;
    }
    let takes_certificates = southbound.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    for (position, environment) in config.environments.iter().enumerate() {
        let path = format!("environments[{position}].join");
        let join = &environment.join;
        if join.identities.is_empty() && join.tokens.is_empty() {
            let message = "lets no node in: list identities or tokens, or set southbound.insecure";
            faults.push(Fault::new(path.clone(), message));
        }
        if !join.identities.is_empty() && southbound.tls.is_some() && !takes_certificates {
            let message = "needs southbound.tls.client_ca: without it no client certificate is asked for";
            faults.push(Fault::new(format!("{path}.identities"), message));
        }
    }
}

fn admin(admin: &AdminConfig, faults: &mut Vec<Fault>) {
    transport("admin", admin.tls.as_ref(), admin.insecure, faults);
    if admin.callers.is_empty() && !admin.insecure {
        let message =
            "is empty: list who may do what (name, role, and identity or key), or set admin.insecure";
        faults.push(Fault::new("admin.callers", message));
    }
    let takes_certificates = admin.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let mut names = BTreeSet::new();
    for (position, caller) in admin.callers.iter().enumerate() {
        let path = format!("admin.callers[{position}]");
        if caller.name.is_empty() || !names.insert(&caller.name) {
            let message = "is empty or used twice: it is what logs call the caller";
            faults.push(Fault::new(format!("{path}.name"), message));
        }
        if caller.identity.is_none() && caller.key.is_none() {
            let message = "has no proof: give it an identity (of a client certificate) or a key";
            faults.push(Fault::new(path.clone(), message));
        }
        if caller.identity.is_some() && !takes_certificates {
            let message = "needs admin.tls.client_ca: without it no client certificate is asked for";
            faults.push(Fault::new(format!("{path}.identity"), message));
        }
        if caller.key.as_ref().is_some_and(|key| key.expose().chars().count() < MIN_SECRET) {
            faults.push(Fault::new(format!("{path}.key"), too_short()));
        }
    }
}

fn transport(path: &str, tls: Option<&ServerFiles>, insecure: bool, faults: &mut Vec<Fault>) {
    match (tls, insecure) {
        (None, false) => {
            let message = "is missing: give the listener a certificate (cert, key), or say `insecure: true`";
            faults.push(Fault::new(format!("{path}.tls"), message));
        }
        (Some(_), true) => {
            let message =
                "stands beside `tls`: take one of them away, the listener is either encrypted or not";
            faults.push(Fault::new(format!("{path}.insecure"), message));
        }
        _ => {}
    }
}

fn durations(config: &Config, faults: &mut Vec<Fault>) {
    let least = [
        ("southbound.heartbeat", config.southbound.heartbeat, Duration::from_millis(100)),
        ("lost_retention", config.lost_retention, Duration::from_secs(1)),
        ("approval_retention", config.approval_retention, Duration::from_secs(60)),
        ("start_deadline", config.start_deadline, Duration::from_secs(1)),
    ];
    for (path, given, least) in least {
        if given < least {
            faults.push(Fault::new(path, format!("is below {least:?}: raise it")));
        }
    }
}

fn too_short() -> String {
    format!("is shorter than {MIN_SECRET} characters and could be guessed: use a longer one")
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
