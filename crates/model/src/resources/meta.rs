//! What resources say about themselves: name, description, labels. Nothing here changes how a request is served.

use std::collections::BTreeMap;

use super::fields::{Fields, is_id};
use super::invalid::Invalid;
use crate::key::Key;

/// A resource's name, description and labels, kept to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `name`: 1 to 256 characters.
    pub name: Option<String>,
    /// `desc`: up to 256 characters.
    pub desc: Option<String>,
    /// `labels`: values of 1 to 256 characters without white space.
    pub labels: BTreeMap<String, String>,
}

/// Takes `id`, `name`, `desc`, `labels`, `create_time` and `update_time`. The id in the value is ignored in favour
/// of the key's, and the times are the writer's own record, checked and dropped.
pub(super) fn take(fields: &mut Fields) -> Result<Meta, Invalid> {
    let name = fields.read("name", |item| item.string(1, 256))?;
    let (desc, labels) = take_unnamed(fields)?;
    Ok(Meta { name, desc, labels })
}

/// [`take`] for kinds without a `name`.
pub(super) fn take_unnamed(
    fields: &mut Fields,
) -> Result<(Option<String>, BTreeMap<String, String>), Invalid> {
    take_record(fields)?;
    let desc = fields.read("desc", |item| item.string(0, 256))?;
    let mut labels = BTreeMap::new();
    if let Some(item) = fields.take("labels") {
        for (label, item) in item.object("labels")?.rest() {
            let path = item.path.clone();
            let text = item.string(1, 256)?;
            if text.chars().any(char::is_whitespace) {
                return Err(Invalid::new(path, "holds white space; use a value without it"));
            }
            labels.insert(label, text);
        }
    }
    Ok((desc, labels))
}

/// Takes `id`, `create_time` and `update_time` alone.
pub(super) fn take_record(fields: &mut Fields) -> Result<(), Invalid> {
    fields.take("id");
    fields.read("create_time", |item| item.integer())?;
    fields.read("update_time", |item| item.integer())?;
    Ok(())
}

/// Checks the id that the key gives, which is the one that counts.
pub(super) fn check_id(key: &Key) -> Result<(), Invalid> {
    if is_id(key.id()) {
        return Ok(());
    }
    let problem = format!(
        "is `{}` by the key; store it under a key whose id is 1 to 64 letters, digits, `-`, `_` and `.`",
        key.id()
    );
    Err(Invalid::new("id", problem))
}
