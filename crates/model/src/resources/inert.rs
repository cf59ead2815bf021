//! Kinds that serve nothing by themselves while nodes run no plugins: validated as far as APISIX's schema states,
//! so that a broken value is told when it is written. Why each of them is inert stands in [`super`].

use serde_json::Value;

use super::fields::{Fields, Item};
use super::hosts;
use super::invalid::Invalid;
use super::meta;
use super::plugins;
use super::{Governs, Typed};
use crate::key::{Key, Kind};

/// A Protobuf definition may have a MiB.
const PROTO_MAX: usize = 1 << 20;

/// A global rule governs every request, so one with an enabled plugin cannot be passed over.
pub(super) fn global_rule(key: &Key, value: &[u8]) -> Result<Typed, Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("a global rule", value)?;
    meta::take_record(&mut fields)?;
    let plugins = plugins::enabled(fields.required("plugins")?)?;
    fields.finish()?;
    if plugins.is_empty() {
        return Ok(Typed::Inert);
    }
    let field = format!("plugins.{}", plugins[0]);
    let why = "nodes run no plugins, and this one governs every request";
    let cure =
        "remove the rule, disable its plugins with `_meta.disable`, or allow the rule by name on the nodes";
    let reason = Invalid::not_yet(field, why, cure).to_string();
    Ok(Typed::Governing(Governs { plugins, reason }))
}

/// Validates a value of any other inert kind.
pub(super) fn parse(kind: Kind, key: &Key, value: &[u8]) -> Result<(), Invalid> {
    match kind {
        Kind::Consumers => consumer(value),
        Kind::Credentials => credential(value),
        Kind::ConsumerGroups => plugin_set("a consumer group", key, value, 1, 256),
        Kind::PluginConfigs => plugin_set("a plugin config", key, value, 0, usize::MAX),
        Kind::PluginMetadata => Fields::root("plugin metadata", value).map(drop),
        Kind::Plugins => plugin_list(value),
        Kind::Protos => proto(key, value),
        Kind::Secrets => secret(key, value),
        Kind::GraphqlCostDecorations => decoration(value),
        Kind::StreamRoutes => stream_route(key, value),
        _ => Ok(()),
    }
}

fn consumer(value: &[u8]) -> Result<(), Invalid> {
    let mut fields = Fields::root("a consumer", value)?;
    meta::take_unnamed(&mut fields)?;
    let name = fields.required("username")?.string(1, 256)?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err(Invalid::new("username", "must be made of letters, digits, `-` and `_`"));
    }
    fields.read("group_id", Item::id)?;
    fields.read("plugins", plugins::enabled)?;
    fields.finish()
}

fn credential(value: &[u8]) -> Result<(), Invalid> {
    let mut fields = Fields::root("a credential", value)?;
    meta::take(&mut fields)?;
    if let Some(item) = fields.take("plugins") {
        let several = item.value.as_object().is_some_and(|plugins| plugins.len() > 1);
        plugins::enabled(item)?;
        if several {
            return Err(Invalid::new(
                "plugins",
                "holds more than one plugin; a credential is for exactly one",
            ));
        }
    }
    fields.finish()
}

/// Consumer groups and plugin configs: named sets of plugins.
fn plugin_set(what: &'static str, key: &Key, value: &[u8], min: usize, max: usize) -> Result<(), Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root(what, value)?;
    fields.read("name", |item| item.string(min, max))?;
    meta::take_unnamed(&mut fields)?;
    plugins::enabled(fields.required("plugins")?)?;
    fields.finish()
}

fn plugin_list(value: &[u8]) -> Result<(), Invalid> {
    let value: Value = serde_json::from_slice(value)
        .map_err(|error| Invalid::new("", format!("is not JSON ({error}); store an array of plugins")))?;
    for item in (Item { path: String::new(), value }).array()? {
        let mut fields = item.object("a plugin's entry")?;
        fields.required("name")?.string(1, usize::MAX)?;
        fields.read("stream", Item::boolean)?;
        fields.finish()?;
    }
    Ok(())
}

fn proto(key: &Key, value: &[u8]) -> Result<(), Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("a proto", value)?;
    meta::take(&mut fields)?;
    fields.required("content")?.string(1, PROTO_MAX)?;
    fields.finish()
}

fn secret(key: &Key, value: &[u8]) -> Result<(), Invalid> {
    let mut fields = Fields::root("a secret manager", value)?;
    meta::take_record(&mut fields)?;
    let (required, optional): (&[&str], &[&str]) = match key.id().split('/').next() {
        Some("vault") => (&["uri", "prefix", "token"], &["namespace"]),
        Some("aws") => {
            (&["access_key_id", "secret_access_key"], &["session_token", "region", "endpoint_url"])
        }
        Some("gcp") => return google(fields),
        _ => return Err(Invalid::new("", "is under a key that names no manager; use vault, aws or gcp")),
    };
    for name in required {
        fields.required(name)?.string(0, usize::MAX)?;
    }
    for name in optional {
        fields.read(name, |item| item.string(0, usize::MAX))?;
    }
    fields.finish()
}

fn google(mut fields: Fields) -> Result<(), Invalid> {
    let file = fields.read("auth_file", |item| item.string(1, usize::MAX))?;
    let config = fields.take("auth_config");
    fields.read("ssl_verify", Item::boolean)?;
    match (file, config) {
        (Some(_), None) => fields.finish(),
        (None, Some(config)) => {
            let mut config = config.object("auth_config")?;
            for name in ["client_email", "private_key", "project_id"] {
                config.required(name)?.string(1, usize::MAX)?;
            }
            fields.finish()
        }
        _ => Err(Invalid::new("auth_config", "and `auth_file` must not both be given or left out; keep one")),
    }
}

fn decoration(value: &[u8]) -> Result<(), Invalid> {
    let mut fields = Fields::root("a GraphQL cost decoration", value)?;
    meta::take(&mut fields)?;
    fields.required("field_path")?.string(1, usize::MAX)?;
    for name in ["add_value", "mul_value"] {
        let path = fields.path_of(name);
        if fields.read(name, Item::number)?.is_some_and(|number| number < 0.0) {
            return Err(Invalid::new(path, "is negative; use a number from 0 on"));
        }
    }
    for name in ["add_arguments", "mul_arguments"] {
        fields.read(name, Item::array)?;
    }
    fields.read("service_id", Item::id)?;
    fields.finish()
}

fn stream_route(key: &Key, value: &[u8]) -> Result<(), Invalid> {
    meta::check_id(key)?;
    let mut fields = Fields::root("a stream route", value)?;
    meta::take(&mut fields)?;
    for name in ["remote_addr", "server_addr"] {
        fields.read(name, hosts::network)?;
    }
    fields.read("server_port", |item| item.integer_within(1, 65535))?;
    fields.read("sni", hosts::pattern)?;
    // Its upstream may use what only stream proxying has, so no more is asked of it than to be an object.
    fields.read("upstream", |item| item.object("an upstream"))?;
    for name in ["upstream_id", "service_id"] {
        fields.read(name, Item::id)?;
    }
    fields.read("plugins", plugins::enabled)?;
    if let Some(item) = fields.take("protocol") {
        item.object("a protocol")?.required("name")?.string(1, usize::MAX)?;
    }
    fields.finish()
}
