//! Values without their secrets.

use headwater_model::{Kind, Resource};
use serde_json::{Value, json};

const REDACTED: &str = "[redacted]";

/// Parts of member names whose values are never shown.
const SECRET_NAMES: [&str; 6] = ["key", "secret", "password", "token", "credential", "auth"];

/// A resource's value for people: secrets redacted; bytes that are no JSON are not shown at all.
pub(super) fn value(resource: &Resource) -> Value {
    let Ok(mut value) = serde_json::from_slice::<Value>(resource.value()) else {
        return json!(format!("not JSON ({} bytes)", resource.value().len()));
    };
    let all = matches!(resource.key().kind(), Kind::Secrets | Kind::Consumers | Kind::Credentials);
    redact(&mut value, all);
    value
}

fn redact(value: &mut Value, all: bool) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.to_ascii_lowercase();
                redact(member, all || SECRET_NAMES.iter().any(|secret| name.contains(secret)));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, all)),
        Value::String(text) if all => REDACTED.clone_into(text),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater_model::{Key, Revision};

    use super::*;

    fn shown(key: &str, text: &'static str) -> String {
        let text = Bytes::from_static(text.as_bytes());
        value(&Resource::new(Key::new(key), text, Revision(1), Revision(1))).to_string()
    }

    #[test]
    fn secrets_of_every_kind_are_hidden_and_the_rest_is_shown() {
        let ssl = shown("ssls/1", r#"{"snis":["a.b"],"cert":"C","key":"K","keys":["K"]}"#);
        assert!(ssl.contains("a.b") && ssl.contains('C') && !ssl.contains("\"K\""), "{ssl}");
        let consumer = shown("consumers/j", r#"{"plugins":{"basic-auth":{"username":"u1"}}}"#);
        assert!(!consumer.contains("u1"), "{consumer}");
        let upstream = shown("upstreams/1", r#"{"tls":{"client_key":"K1"},"nodes":{"a:1":1}}"#);
        assert!(!upstream.contains("K1") && upstream.contains("a:1"), "{upstream}");
        assert!(!shown("ssls/1", "KEY").contains("KEY"));
    }
}
