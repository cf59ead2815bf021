//! Crates import downwards only: `model` <- `proto` <- planes; `durable`, `process` and `tls` beside `model`; the
//! planes never each other.

use std::path::PathBuf;

use serde::Deserialize;

/// What is read of `cargo metadata --no-deps`.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
}

/// A crate of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// Absent for an ordinary one, else `dev` or `build`.
    kind: Option<String>,
}

const BELOW_PLANES: &[&str] =
    &["headwater-model", "headwater-proto", "headwater-durable", "headwater-process", "headwater-tls"];
const PLANES: [&str; 2] = ["headwater-control-plane", "headwater-data-plane"];
/// These import both planes.
const ABOVE_PLANES: [&str; 2] = ["headwater-cli", "headwater-tests"];

/// What a crate may import; `None` for a crate nobody has placed yet.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    Some(match name {
        "headwater-model" | "headwater-durable" | "headwater-process" | "headwater-tls"
        | "headwater-lint" => vec![],
        "headwater-proto" => vec!["headwater-model"],
        plane if PLANES.contains(&plane) => BELOW_PLANES.to_vec(),
        above if ABOVE_PLANES.contains(&above) => [BELOW_PLANES, &PLANES].concat(),
        _ => return None,
    })
}

/// Every edge that points the wrong way.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    metadata.packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(allowed) = allowed(name) else {
        return vec![format!("{name}: is not placed in the layers: add it to tools/lint/src/edges.rs")];
    };
    let own = package.dependencies.iter().filter(|edge| edge.name.starts_with("headwater-"));
    own.filter(|edge| !permitted(edge, &allowed))
        .map(|edge| format!("{name}: must not depend on {}: imports point down only", edge.name))
        .collect()
}

fn permitted(edge: &Dependency, allowed: &[&str]) -> bool {
    // A test of a low crate may use its neighbours, never a plane.
    let neighbour = edge.kind.as_deref() == Some("dev") && BELOW_PLANES.contains(&edge.name.as_str());
    neighbour || allowed.contains(&edge.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(name: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let kind = kind.map(str::to_owned);
        let dependencies = vec![Dependency { name: dependency.to_owned(), kind }];
        check_package(&Package { name: name.to_owned(), dependencies })
    }

    #[test]
    fn edges_point_down() {
        assert_eq!(check_one("headwater-proto", "headwater-model", None), [""; 0]);
        assert_eq!(check_one("headwater-control-plane", "headwater-tls", None), [""; 0]);
        assert_eq!(check_one("headwater-cli", "headwater-data-plane", None), [""; 0]);
        assert_eq!(check_one("headwater-model", "serde", None), [""; 0]);
        assert_eq!(check_one("headwater-tls", "headwater-process", Some("dev")), [""; 0]);
    }

    #[test]
    fn a_wrong_edge_is_found() {
        for (from, to, kind) in [
            ("headwater-control-plane", "headwater-data-plane", None),
            ("headwater-data-plane", "headwater-control-plane", Some("dev")),
            ("headwater-model", "headwater-proto", None),
            ("headwater-tls", "headwater-process", None),
            ("headwater-proto", "headwater-cli", Some("build")),
        ] {
            assert_eq!(check_one(from, to, kind).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn a_new_crate_has_to_be_placed() {
        assert_eq!(check_one("headwater-new", "serde", None).len(), 1);
    }
}
