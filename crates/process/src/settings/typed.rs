//! From an untyped tree to a typed value, with every fault on the way.
//!
//! serde stops at the first fault. So the value at fault is noted, taken out, and the rest read again, until it
//! reads; the value that results is thrown away if anything was noted.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Fault;
use super::path::{KeyPath, Step};
use super::tree::{Tree, at};

/// More faults than this are not looked for: the file is of another kind.
const FAULTS_MAX: usize = 100;

struct Stop {
    path: KeyPath,
    message: String,
}

/// Reads the tree. Faults are appended; `None` if not even the rest could be read.
pub(super) fn read<T: DeserializeOwned + Serialize>(tree: &mut Tree, faults: &mut Vec<Fault>) -> Option<T> {
    let mut removed: Vec<KeyPath> = Vec::new();
    while faults.len() < FAULTS_MAX {
        let stop = match attempt::<T>(&tree.root) {
            Ok((value, ignored)) => {
                report_unknown(&value, &ignored, tree, faults);
                return Some(value);
            }
            Err(stop) => stop,
        };
        if tree.fall_back_to_raw(&stop.path) {
            continue;
        }
        let original = tree.original(&stop.path);
        // A required key lacks in its section: serde names the section. The rest of it was readable, else serde
        // had stopped there before.
        let fault = match missing_field(&stop.message) {
            Some(field) => {
                let missing = original.join(Step::Key(field.to_owned()));
                let ours = removed.contains(&missing);
                (!ours).then(|| Fault::at(&missing, "is required and has no default: set it"))
            }
            None => Some(Fault::at(&original, with_cure(&stop.message))),
        };
        faults.extend(fault.map(|fault| tree.with_origin(fault)));
        if !tree.remove(&stop.path) {
            return None;
        }
        removed.push(original);
    }
    None
}

fn attempt<T: DeserializeOwned>(root: &Value) -> Result<(T, Vec<KeyPath>), Stop> {
    let mut ignored = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| ignored.push(KeyPath::from(&path));
    let noting = serde_ignored::Deserializer::new(root, &mut note);
    match serde_path_to_error::deserialize(noting) {
        Ok(value) => Ok((value, ignored)),
        Err(error) => Err(Stop { path: KeyPath::from(error.path()), message: error.inner().to_string() }),
    }
}

fn report_unknown<T: Serialize>(value: &T, ignored: &[KeyPath], tree: &Tree, faults: &mut Vec<Fault>) {
    let mut shown = serde_json::to_value(value).unwrap_or_default();
    for path in ignored {
        let above = KeyPath(path.0.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default());
        let known = match at(&mut shown, &above) {
            Some(Value::Object(map)) if !map.is_empty() => {
                let names: Vec<&str> = map.keys().map(String::as_str).collect();
                format!("; known here: {}", names.join(", "))
            }
            _ => String::new(),
        };
        let message = format!("is not a known key: correct its name or remove it{known}");
        faults.push(tree.with_origin(Fault::at(&tree.original(path), message)));
    }
}

fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Messages of serde say what is wrong; those of our own types also say what to write.
fn with_cure(message: &str) -> String {
    let from_serde = ["invalid type", "invalid value", "invalid length", "unknown variant"];
    if from_serde.iter().any(|start| message.starts_with(start)) {
        format!("{message}: correct the value or leave the key out")
    } else {
        message.to_owned()
    }
}
