//! Cores are pure: no runtime, clock, file, socket or randomness. And some foreign crates are named in one file only.

use crate::source::{Word, words};

/// Paths, or beginnings of paths, of the pure modules.
const PURE: &[&str] = &[
    "crates/model/src/",
    "control-plane/src/backend/etcd/tracker",
    "control-plane/src/backend/embedded/mvcc",
    "control-plane/src/store",
    "control-plane/src/hold",
    "control-plane/src/distribution/session",
    "control-plane/src/fleet/registry",
    "control-plane/src/fleet/wait",
    "control-plane/src/approval",
    "control-plane/src/admin/form",
    "control-plane/src/admin/validation",
    "control-plane/src/admin/writing/plan",
    "data-plane/src/sync/protocol",
    "data-plane/src/sync/verdict",
    "data-plane/src/routing",
    "data-plane/src/upstream/balancer",
    "data-plane/src/proxy/error",
    "data-plane/src/proxy/framing",
    "data-plane/src/proxy/host",
    "data-plane/src/proxy/path",
];

/// Names that make a module impure, and what each brings in.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "a runtime"),
    ("tokio_util", "a runtime"),
    ("tonic", "a transport"),
    ("hyper", "a transport"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("fs", "files"),
    ("File", "files"),
    ("TcpStream", "sockets"),
    ("TcpListener", "sockets"),
    ("UdpSocket", "sockets"),
    ("UnixStream", "sockets"),
    ("UnixListener", "sockets"),
    ("ToSocketAddrs", "name lookup"),
    ("thread", "threads"),
    ("rand", "randomness"),
    ("getrandom", "randomness"),
    ("RandomState", "randomness"),
    ("new_v4", "randomness"),
];

/// A crate, the folder it is confined in, and the only file there that names it.
const CONFINED: &[(&str, &str, &str)] =
    &[("etcd_client", "control-plane/src/", "control-plane/src/backend/etcd/client")];

/// Every impure name in a pure module, every crate named outside its file. Comments, strings and inline tests do not
/// count.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let words = words(text);
    let mut faults = Vec::new();
    if PURE.iter().any(|pure| path.starts_with(pure)) {
        faults.extend(words.iter().filter_map(|word| impure(path, word)));
    }
    for (name, folder, home) in CONFINED {
        if path.starts_with(folder) && !path.starts_with(home) {
            let named = words.iter().find(|word| word.text == *name);
            faults.extend(named.map(|word| format!("{path}:{}: {name} is named in {home} only", word.line)));
        }
    }
    faults
}

/// The rules that no file is under: a module that was renamed would lose its check in silence.
pub(crate) fn unused(paths: &[String]) -> Vec<String> {
    let unused = PURE.iter().filter(|pure| !paths.iter().any(|path| path.starts_with(**pure)));
    unused
        .map(|pure| format!("{pure}: no such module: correct the list in tools/lint/src/purity.rs"))
        .collect()
}

fn impure(path: &str, word: &Word<'_>) -> Option<String> {
    let (name, what) = IMPURE.iter().find(|(name, _)| *name == word.text)?;
    // A field or method of that name is no import: `.fs`, `.thread()`.
    (word.before != Some('.')).then(|| {
        format!("{path}:{}: `{name}` brings {what} into a pure module: let the shell do it", word.line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURE_FILE: &str = "control-plane/src/store/index.rs";

    #[test]
    fn each_impurity_is_found_with_its_line() {
        for line in [
            "use tokio::sync::mpsc;",
            "use std::time::{Duration, Instant};",
            "let now = std::time::SystemTime::now();",
            "use std::{fmt, fs};",
            "let f = std::fs::read(path)?;",
            "fn f(_: std::net::TcpStream) {}",
            "let x: f64 = rand::random();",
            "let id = Uuid::new_v4();",
        ] {
            let faults = check(PURE_FILE, &format!("//! Header.\n\n{line}\n"));
            assert_eq!(faults.len(), 1, "{line}: {faults:?}");
            assert!(faults[0].starts_with("control-plane/src/store/index.rs:3: "), "{faults:?}");
        }
    }

    #[test]
    fn what_only_looks_impure_is_not() {
        let text = r###"//! Needs no tokio.
use std::net::IpAddr; // never a TcpStream
/* nor an Instant */
fn f(operand: u8, fs_like: &str) -> &str { "tokio::spawn and rand" }
fn g(c: char, x: X) -> bool { c == '"' || c == '\'' || x.fs }
fn h<'tokio_like>(r: &'tokio_like str) { let _ = r##"fs " rand"##; }
#[cfg(test)]
mod tests {
    use std::time::Instant;
}
"###;
        assert_eq!(check(PURE_FILE, text), [""; 0]);
        assert_eq!(check("control-plane/src/store/tests.rs", "use std::fs;"), [""; 0]);
        assert_eq!(check("control-plane/src/app.rs", "use std::fs;"), [""; 0]);
    }

    #[test]
    fn a_rule_without_a_file_is_found() {
        let mut paths: Vec<String> = PURE.iter().map(|pure| format!("{pure}.rs")).collect();
        assert_eq!(unused(&paths), [""; 0]);
        paths.pop();
        assert_eq!(unused(&paths).len(), 1);
    }

    #[test]
    fn a_confined_crate_stays_in_its_file() {
        let text = "use etcd_client::Client;";
        assert_eq!(check("control-plane/src/backend/etcd/watch.rs", text).len(), 1);
        assert_eq!(check("control-plane/src/backend/etcd/client.rs", text), [""; 0]);
        assert_eq!(check("control-plane/src/backend/etcd/client/tls.rs", text), [""; 0]);
        assert_eq!(check("tests/src/etcd.rs", text), [""; 0]);
    }
}
