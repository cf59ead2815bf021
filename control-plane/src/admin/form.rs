//! Values in the form that APISIX stores them in, so that its tools read what Headwater wrote. Pure.
//!
//! The writer adds `id` from the key (`username` for consumers), `create_time` (kept over a replacement) and
//! `update_time`. Defaults are not stored. `plugins` and `plugin_metadata` carry no times.

use bytes::Bytes;
use headwater_model::shape::{Shape, classify};
use headwater_model::{Key, Kind};
use serde_json::{Map, Value};

/// What a private key is shown as to a viewer.
const REDACTED: &str = "[redacted]";

/// A key as operators write it: `routes/1`, also with a leading slash.
///
/// # Errors
/// A sentence that names the key and the cure.
pub fn key(text: &str) -> Result<Key, String> {
    let relative = text.strip_prefix('/').unwrap_or(text);
    let Shape::Content(key) = classify(relative.as_bytes()) else {
        return Err(format!("{text:?} is no key of a resource: write kind/id, such as routes/1"));
    };
    if key.kind() == Kind::Unknown {
        return Err(format!("{text:?} is of no known kind: use one of {}", kinds()));
    }
    Ok(key)
}

/// The value to store for what an operator wrote.
///
/// # Errors
/// The field and what is wrong with it.
pub fn stored(key: &Key, written: &[u8], present: Option<&[u8]>, now_unix: u64) -> Result<Bytes, FormError> {
    let value: Value = serde_json::from_slice(written)
        .map_err(|error| FormError::new("", format!("is no JSON ({error})")))?;
    if key.kind() == Kind::Plugins {
        return Ok(written.to_vec().into());
    }
    let Value::Object(mut object) = value else {
        return Err(FormError::new("", "is no JSON object".into()));
    };
    name(key, &mut object)?;
    if key.kind() != Kind::PluginMetadata {
        let present = present.and_then(|present| serde_json::from_slice::<Value>(present).ok());
        let created = present.as_ref().and_then(|present| present.get("create_time")?.as_u64());
        object.insert("create_time".into(), created.unwrap_or(now_unix).into());
        object.insert("update_time".into(), now_unix.into());
    }
    let bytes = serde_json::to_vec(&object).map_err(|error| FormError::new("", error.to_string()))?;
    Ok(bytes.into())
}

/// Whether two stored values say the same, apart from when they were written.
#[must_use]
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    let timeless = |value: &[u8]| {
        let mut value: Value = serde_json::from_slice(value).ok()?;
        if let Value::Object(object) = &mut value {
            object.remove("create_time");
            object.remove("update_time");
        }
        Some(value)
    };
    match (timeless(a), timeless(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// The value without private keys, if it held any.
#[must_use]
pub fn redacted(key: &Key, value: &[u8]) -> Option<Bytes> {
    let mut parsed: Value = serde_json::from_slice(value).ok()?;
    let mut found = false;
    let mut redact = |place: Option<&mut Value>| {
        if let Some(place) = place.filter(|place| !place.is_null()) {
            *place = REDACTED.into();
            found = true;
        }
    };
    match key.kind() {
        Kind::Ssls => {
            redact(parsed.get_mut("key"));
            redact(parsed.get_mut("keys"));
        }
        Kind::Upstreams => redact(parsed.pointer_mut("/tls/client_key")),
        Kind::Routes | Kind::Services | Kind::StreamRoutes => {
            redact(parsed.pointer_mut("/upstream/tls/client_key"));
            redact(parsed.get_mut("plugins"));
        }
        // These hold credentials in places that only their plugin or manager knows.
        Kind::Consumers
        | Kind::Credentials
        | Kind::ConsumerGroups
        | Kind::GlobalRules
        | Kind::PluginConfigs
        | Kind::PluginMetadata
        | Kind::Secrets => {
            redact(Some(&mut parsed));
        }
        _ => {}
    }
    found.then(|| parsed.to_string().into())
}

/// A value that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}{problem}", if field.is_empty() { "the value " } else { " " })]
pub struct FormError {
    /// The field, empty for the value as a whole.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl FormError {
    const fn new(field: &'static str, problem: String) -> Self {
        Self { field, problem }
    }
}

/// Sets the name by which the value knows itself, or refuses another one.
fn name(key: &Key, object: &mut Map<String, Value>) -> Result<(), FormError> {
    let (field, own) = match key.kind() {
        Kind::Consumers => ("username", key.id()),
        Kind::Credentials | Kind::GraphqlCostDecorations => {
            ("id", key.id().rsplit('/').next().unwrap_or_default())
        }
        _ => ("id", key.id()),
    };
    let given = match object.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::String(given)) => Some(given.clone()),
        Some(other) => Some(other.to_string()),
    };
    match given {
        // A loaded value carries the whole remainder of its key.
        Some(given) if given != own && given != key.id() => {
            let problem = format!("is {given:?} and the key says {own:?}: leave it out or make them equal");
            Err(FormError::new(field, problem))
        }
        _ => {
            object.insert(field.into(), own.into());
            Ok(())
        }
    }
}

fn kinds() -> String {
    let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store(key: &str, written: &Value, present: Option<&Value>) -> Result<Value, FormError> {
        let present = present.map(Value::to_string);
        let key = super::key(key).unwrap();
        let bytes =
            stored(&key, written.to_string().as_bytes(), present.as_ref().map(String::as_bytes), 100)?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn id_and_times_are_added_and_the_creation_is_kept() {
        assert_eq!(
            store("routes/1", &json!({"uri": "/a"}), None),
            Ok(json!({"uri": "/a", "id": "1", "create_time": 100, "update_time": 100}))
        );
        let read_back = json!({"id": 1, "uri": "/b", "create_time": 7, "update_time": 8});
        assert_eq!(
            store("routes/1", &read_back, Some(&json!({"create_time": 5, "update_time": 6}))),
            Ok(json!({"uri": "/b", "id": "1", "create_time": 5, "update_time": 100}))
        );
    }

    #[test]
    fn each_kind_is_named_as_apisix_names_it() {
        assert_eq!(store("consumers/jack", &json!({}), None).unwrap()["username"], "jack");
        assert_eq!(store("consumers/jack/credentials/c", &json!({}), None).unwrap()["id"], "c");
        assert_eq!(store("secrets/vault/1", &json!({}), None).unwrap()["id"], "vault/1");
        assert_eq!(
            store("plugin_metadata/http-logger", &json!({"log_format": {}}), None),
            Ok(json!({"log_format": {}, "id": "http-logger"}))
        );
    }

    #[test]
    fn another_name_in_the_value_is_refused() {
        let error = store("routes/1", &json!({"id": "2"}), None).unwrap_err();
        assert_eq!((error.field, error.to_string().contains("\"2\"")), ("id", true));
    }

    #[test]
    fn keys_are_kind_and_id() {
        assert_eq!(key("/routes/1").map(|key| key.to_string()), Ok("routes/1".into()));
        assert!(key("routes").unwrap_err().contains("kind/id"));
        assert!(key("rutes/1").unwrap_err().contains("upstreams"));
        assert!(key("data_plane/headwater/approvals/1").is_err());
    }

    #[test]
    fn the_same_apart_from_times() {
        assert!(is_same(br#"{"a":1,"update_time":5}"#, br#"{"update_time":9, "a":1}"#));
        assert!(!is_same(br#"{"a":1}"#, br#"{"a":2}"#));
        assert!(!is_same(b"x", b"y"));
    }

    #[test]
    fn private_keys_are_taken_out_for_viewers() {
        let ssl = Key::new("ssls/1");
        let shown = redacted(&ssl, br#"{"cert":"c","key":"secret","keys":["other"]}"#).unwrap();
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown, json!({"cert": "c", "key": REDACTED, "keys": REDACTED}));
        assert_eq!(redacted(&Key::new("routes/1"), br#"{"uri":"/a"}"#), None);
        assert!(redacted(&Key::new("consumers/j"), br#"{"plugins":{"key-auth":{"key":"k"}}}"#).is_some());
    }
}
