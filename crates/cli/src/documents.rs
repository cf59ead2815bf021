//! From files and folders to writes. Nothing is sent before everything was read.

use std::io::Read;
use std::path::{Path, PathBuf};

use headwater_model::Kind;
use headwater_proto::admin::Write;
use serde_json::{Map, Value};

use crate::exit::Error;

/// Reads every document of every file, in the order given and by name within a folder.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Write>, Error> {
    let mut writes: Vec<Write> = Vec::new();
    for path in paths {
        let files = if path.is_dir() { below(path)? } else { vec![path.clone()] };
        if files.is_empty() {
            return Err(fault(path, "holds no .json, .yaml or .yml file"));
        }
        for file in files {
            for document in parse(&file, &text(&file)?)? {
                writes.extend(of_document(&file, document)?);
            }
        }
    }
    Ok(writes)
}

/// One value from a file, or from text.
pub(crate) fn value(file: Option<&Path>, given: Option<&str>) -> Result<Vec<u8>, Error> {
    let (path, text) = match (file, given) {
        (Some(file), _) => (file.to_path_buf(), text(file)?),
        (None, given) => (PathBuf::from("the value"), given.unwrap_or_default().to_owned()),
    };
    let mut documents = parse(&path, &text)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(value), true) => Ok(value.to_string().into_bytes()),
        (None, _) => Err(fault(&path, "is empty: write one JSON or YAML value")),
        (Some(_), false) => {
            Err(fault(&path, "holds several documents: use `apply` for more than one resource"))
        }
    }
}

fn text(file: &Path) -> Result<String, Error> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Error::File { path: "standard input".into(), problem: error.to_string() })?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
        .map_err(|error| Error::File { path: file.into(), problem: format!("cannot be read ({error})") })
}

/// The files of a folder and those below it, by name.
fn below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: std::io::Error| fault(folder, format!("cannot be listed ({error})"));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
    }
    entries.sort();
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(below(&path)?);
        } else if path
            .extension()
            .is_some_and(|end| ["json", "yaml", "yml"].iter().any(|known| end == *known))
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// JSON documents one after the other, or YAML documents.
fn parse(path: &Path, text: &str) -> Result<Vec<Value>, Error> {
    let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    let failed = match json {
        Ok(documents) => return Ok(documents),
        Err(error) => error,
    };
    if path.extension().is_some_and(|end| end == "json") {
        return Err(fault(path, format!("is not JSON ({failed})")));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let whole = error.to_string();
        fault(path, format!("is neither JSON nor YAML ({})", whole.lines().next().unwrap_or_default()))
    })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn of_document(path: &Path, document: Value) -> Result<Vec<Write>, Error> {
    match document {
        Value::Array(items) => {
            let writes: Result<Vec<_>, _> = items.into_iter().map(|item| of_document(path, item)).collect();
            Ok(writes?.concat())
        }
        Value::Object(object) if object.contains_key("key") => Ok(vec![of_keyed(path, object)?]),
        Value::Object(object) => {
            let writes: Result<Vec<_>, _> =
                object.into_iter().map(|(kind, items)| of_kind(path, &kind, items)).collect();
            Ok(writes?.concat())
        }
        other => {
            let shown: String = other.to_string().chars().take(40).collect();
            Err(fault(
                path,
                format!("holds {shown}, which is no resource: write {{\"key\": ..., \"value\": ...}}"),
            ))
        }
    }
}

/// `{"key": "routes/1", "value": {...}}`, with what `get` prints beside it.
fn of_keyed(path: &Path, mut object: Map<String, Value>) -> Result<Write, Error> {
    let Some(Value::String(key)) = object.remove("key") else {
        return Err(fault(path, "`key` is no text: write it as kind/id, such as \"routes/1\""));
    };
    let Some(value) = object.remove("value") else {
        return Err(fault(path, format!("{key} has no `value`")));
    };
    // What `get` and `list` print for people to see; a condition is given with --if-mod-revision.
    for shown in ["create_revision", "mod_revision"] {
        object.remove(shown);
    }
    match object.keys().next() {
        None => Ok(Write { key, value: Some(value.to_string().into_bytes()), if_mod_revision: None }),
        Some(unknown) if unknown == "redacted" => Err(fault(
            path,
            format!("{key} was read by a viewer, its private keys are taken out: read it as admin"),
        )),
        Some(unknown) => {
            Err(fault(path, format!("{key} has the unknown field `{unknown}` beside key and value")))
        }
    }
}

/// `routes: [{id: "1", ...}]`, as APISIX's standalone file has it.
fn of_kind(path: &Path, kind: &str, items: Value) -> Result<Vec<Write>, Error> {
    let Some(known) = Kind::ALL.into_iter().find(|known| known.name() == kind) else {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        return Err(fault(path, format!("`{kind}` is no kind: use one of {}", names.join(", "))));
    };
    let Value::Array(items) = items else {
        return Err(fault(path, format!("`{kind}` is no list: write a list of resources")));
    };
    if known == Kind::Plugins {
        let value = Some(Value::Array(items).to_string().into_bytes());
        return Ok(vec![Write { key: kind.into(), value, if_mod_revision: None }]);
    }
    let field = if known == Kind::Consumers { "username" } else { "id" };
    items
        .into_iter()
        .enumerate()
        .map(|(position, item)| {
            let id = match item.get(field).or_else(|| item.get("id")) {
                Some(Value::String(id)) => id.clone(),
                Some(Value::Number(id)) => id.to_string(),
                _ => return Err(fault(path, format!("{kind}[{position}] has no `{field}`"))),
            };
            Ok(Write {
                key: format!("{kind}/{id}"),
                value: Some(item.to_string().into_bytes()),
                if_mod_revision: None,
            })
        })
        .collect()
}

fn fault(path: &Path, problem: impl Into<String>) -> Error {
    Error::File { path: path.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn keys(writes: &[Write]) -> Vec<&str> {
        writes.iter().map(|write| write.key.as_str()).collect()
    }

    #[test]
    fn folders_files_and_documents_of_both_forms() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            "b.yaml",
            "key: routes/1\nvalue: {uri: /a}\n---\nkey: routes/2\nvalue: {uri: /b}\n",
        );
        write(
            folder.path(),
            "a/x.yml",
            "upstreams:\n  - id: 1\n    nodes: {'10.0.0.1:80': 1}\nconsumers:\n  - username: jack\n#END\n",
        );
        write(folder.path(), "c.json", r#"[{"key":"routes/3","value":{"uri":"/c"},"mod_revision":5}]"#);
        write(folder.path(), "readme.md", "not ours");
        let writes = read(&[folder.path().into()]).unwrap();
        assert_eq!(keys(&writes), ["consumers/jack", "upstreams/1", "routes/1", "routes/2", "routes/3"]);
        assert_eq!(writes[2].value.as_deref(), Some(&br#"{"uri":"/a"}"#[..]));
    }

    #[test]
    fn faults_name_the_file_and_the_thing() {
        let folder = tempfile::tempdir().unwrap();
        for (text, named) in [
            ("rutes: []", "`rutes` is no kind"),
            ("routes: {}", "no list"),
            ("routes: [{uri: /a}]", "routes[0] has no `id`"),
            ("key: routes/1", "has no `value`"),
            ("key: routes/1\nvalue: {}\nif: 1", "unknown field `if`"),
            ("key: ssls/1\nvalue: {}\nredacted: true", "viewer"),
            ("just text", "no resource"),
            ("a: [", "neither JSON nor YAML"),
        ] {
            write(folder.path(), "x.yaml", text);
            let error = read(&[folder.path().join("x.yaml")]).unwrap_err();
            assert!(
                error.to_string().contains("x.yaml") && error.to_string().contains(named),
                "{text}: {error}"
            );
            assert_eq!(error.exit(), crate::exit::Exit::Usage);
        }
    }

    #[test]
    fn a_value_is_json_or_yaml_and_one() {
        assert_eq!(value(None, Some("{uri: /a}")).unwrap(), br#"{"uri":"/a"}"#);
        assert_eq!(value(None, Some(r#"{"uri":"/a"}"#)).unwrap(), br#"{"uri":"/a"}"#);
        assert!(value(None, Some("{} {}")).is_err());
        assert!(value(None, Some("")).is_err());
    }
}
