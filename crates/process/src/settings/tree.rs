//! The merged, still untyped settings, and where each value came from.

use serde_json::{Map, Value};

use super::path::{KeyPath, Step};
use super::{ENVIRONMENT_PREFIX, Fault, Sources};

/// A tree of values with the assignments that were laid over the file.
pub(super) struct Tree {
    pub(super) root: Value,
    file: Option<String>,
    assignments: Vec<Assignment>,
    /// Places in lists that were taken out, in the coordinates of the original lists.
    removed: Vec<(KeyPath, usize)>,
}

struct Assignment {
    path: KeyPath,
    /// As it was written, for a key that wants a string though the value looks like a number.
    raw: String,
    origin: String,
}

// === impl Tree ===

impl Tree {
    /// Merges the sources; what cannot be parsed becomes a fault and is left out.
    pub(super) fn new(sources: Sources, faults: &mut Vec<Fault>) -> Self {
        let mut tree = Self {
            root: Value::Object(Map::new()),
            file: sources.file.as_ref().map(|(name, _)| name.clone()),
            assignments: Vec::new(),
            removed: Vec::new(),
        };
        if let Some((name, text)) = &sources.file {
            match parse_file(text) {
                Ok(root) => tree.root = root,
                Err(message) => faults.push(Fault::new("", message).out_of(name)),
            }
        }
        for (name, raw) in sources.environment {
            let parts = name.trim_start_matches(ENVIRONMENT_PREFIX).to_lowercase();
            let path = KeyPath::from_parts(parts.split("__"));
            tree.assign(Assignment { path, raw, origin: format!("environment variable {name}") }, faults);
        }
        for argument in sources.set {
            let origin = format!("--set {}", argument.split('=').next().unwrap_or_default());
            match argument.split_once('=') {
                Some((key, raw)) if !key.is_empty() => {
                    let path = KeyPath::from_parts(key.split('.'));
                    tree.assign(Assignment { path, raw: raw.to_owned(), origin }, faults);
                }
                _ => faults.push(Fault::new("", format!("--set {argument}: write it as key.part=value"))),
            }
        }
        tree
    }

    /// Adds where the value at the fault's path came from.
    pub(super) fn with_origin(&self, mut fault: Fault) -> Fault {
        if fault.origin.is_none() {
            let path = parse_shown(&fault.path);
            fault.origin = self.assignment(&path).map(|it| it.origin.clone()).or_else(|| self.file.clone());
        }
        fault
    }

    /// If the value at `path` was assigned and is not yet the string as written: makes it that.
    pub(super) fn fall_back_to_raw(&mut self, path: &KeyPath) -> bool {
        let original = self.original(path);
        let exact = |it: &&Assignment| it.path.leads_to(&original) && original.leads_to(&it.path);
        let Some(assignment) = self.assignments.iter().rev().find(exact) else { return false };
        let raw = Value::String(assignment.raw.clone());
        match at(&mut self.root, path) {
            Some(value) if *value != raw && !value.is_object() && !value.is_array() => {
                *value = raw;
                true
            }
            _ => false,
        }
    }

    /// Takes the value out, so that reading can go on without it. False if there is none.
    pub(super) fn remove(&mut self, path: &KeyPath) -> bool {
        let original = self.original(path);
        let Some((last, above)) = path.0.split_last() else { return false };
        let above = KeyPath(above.to_vec());
        match (at(&mut self.root, &above), last) {
            (Some(Value::Object(map)), Step::Key(key)) => map.remove(key).is_some(),
            (Some(Value::Array(list)), Step::Index(index)) if *index < list.len() => {
                list.remove(*index);
                if let Some((Step::Index(index), list)) = original.0.split_last() {
                    self.removed.push((KeyPath(list.to_vec()), *index));
                    self.removed.sort_by_key(|(_, index)| *index);
                }
                true
            }
            _ => false,
        }
    }

    /// The path as it was before anything was taken out of lists.
    pub(super) fn original(&self, path: &KeyPath) -> KeyPath {
        let mut original = KeyPath::default();
        for step in &path.0 {
            let step = match step {
                Step::Key(key) => Step::Key(key.clone()),
                Step::Index(index) => {
                    let gone = self.removed.iter().filter(|(list, _)| *list == original);
                    Step::Index(gone.fold(*index, |index, (_, gone)| index + usize::from(*gone <= index)))
                }
            };
            original.0.push(step);
        }
        original
    }

    fn assign(&mut self, assignment: Assignment, faults: &mut Vec<Fault>) {
        let value = match serde_saphyr::from_str::<Value>(&assignment.raw) {
            Ok(value) => value,
            // What is no YAML, such as a password with a brace, is a string.
            Err(_) => Value::String(assignment.raw.clone()),
        };
        match place(&mut self.root, &assignment.path) {
            Ok(place) => {
                *place = value;
                self.assignments.push(assignment);
            }
            Err(message) => faults.push(Fault::at(&assignment.path, message).out_of(assignment.origin)),
        }
    }

    fn assignment(&self, path: &KeyPath) -> Option<&Assignment> {
        self.assignments.iter().rev().find(|assignment| assignment.path.leads_to(path))
    }
}

fn parse_file(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(Value::Object(map)) => Ok(Value::Object(map)),
        Ok(Value::Null) => Ok(Value::Object(Map::new())),
        Ok(_) => Err("the file is not a mapping: write `key: value` lines at its top level".into()),
        Err(error) => {
            let whole = error.to_string();
            let first = whole.lines().next().unwrap_or_default();
            Err(format!("the file is not YAML ({first}): correct it there"))
        }
    }
}

/// The value at a path.
pub(super) fn at<'a>(root: &'a mut Value, path: &KeyPath) -> Option<&'a mut Value> {
    path.0.iter().try_fold(root, |value, step| match (value, step) {
        (Value::Object(map), Step::Key(key)) => map.get_mut(key),
        (Value::Array(list), Step::Index(index)) => list.get_mut(*index),
        _ => None,
    })
}

/// The place for a value, sections made on the way.
fn place<'a>(root: &'a mut Value, path: &KeyPath) -> Result<&'a mut Value, String> {
    let mut value = root;
    for step in &path.0 {
        let Step::Key(key) = step else { return Err("an index cannot be assigned".into()) };
        if key.is_empty() {
            return Err("a part of the key is empty: write it as key.part".into());
        }
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        value = match value {
            Value::Object(map) => map.entry(key.clone()).or_insert(Value::Null),
            Value::Array(list) => {
                let length = list.len();
                key.parse().ok().and_then(|index: usize| list.get_mut(index)).ok_or_else(|| {
                    format!("`{key}` is no place in a list of {length}: use a number from 0, or set the whole list")
                })?
            }
            _ => return Err(format!("`{key}` lies below a plain value: set the value itself")),
        };
    }
    Ok(value)
}

/// A path as a check wrote it: `a.b[0].c`.
fn parse_shown(shown: &str) -> KeyPath {
    KeyPath::from_parts(shown.split(['.', '[', ']']).filter(|part| !part.is_empty()))
}
