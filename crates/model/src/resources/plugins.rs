//! `plugins` objects: which of them are switched on. No plugin runs yet.

use super::fields::Item;
use super::invalid::Invalid;

/// The names of the plugins that are not switched off by `_meta.disable`, in order.
pub(super) fn enabled(item: Item) -> Result<Vec<String>, Invalid> {
    let mut names = Vec::new();
    for (name, conf) in item.object("plugins")?.rest() {
        let mut conf = conf.object("a plugin's configuration")?;
        let disabled = match conf.take("_meta") {
            Some(meta) => meta.object("_meta")?.read("disable", Item::boolean)?,
            None => None,
        };
        if disabled != Some(true) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Refuses a `plugins` object with an enabled plugin. A disabled one does nothing in APISIX either, except to
/// shadow the same plugin of a service, which has none enabled.
pub(super) fn refuse_enabled(item: Item) -> Result<(), Invalid> {
    let path = item.path.clone();
    match enabled(item)?.first() {
        Some(name) => Err(Invalid::not_yet(
            format!("{path}.{name}"),
            "nodes run no plugins",
            "remove the plugin or disable it with `_meta.disable`",
        )),
        None => Ok(()),
    }
}
