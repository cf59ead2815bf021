//! Content-shape rule 1: which keys below a prefix are content, by the key's bytes alone.
//!
//! A key is content when it has two or more non-empty UTF-8 segments and the first is not `data_plane`, or when it
//! is the single key `plugins`. So APISIX's placeholders (`routes/`), `gen_id` and `data_plane/server_info/..` are
//! not, whatever their values; a reader and a writer agree without looking at a value. The rule is part of
//! [`DIGEST_SCHEME`](crate::digest::DIGEST_SCHEME): changing it changes every digest.

use crate::key::Key;

/// The first segment whose keys are never content: what nodes and replicas write about themselves.
pub const DATA_PLANE: &str = "data_plane";

/// What a key below the prefix is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Content under this key.
    Content(Key),
    /// Not content; counted and listed, never parsed.
    Ignored(Ignored),
}

/// Why a key is not content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// A directory's placeholder: one segment and a trailing slash.
    Placeholder,
    /// A single segment other than `plugins`, such as `gen_id`.
    Single,
    /// An empty segment somewhere.
    EmptySegment,
    /// Below `data_plane/`.
    DataPlane,
}

/// Classifies a key given relative to `<prefix>/`.
#[must_use]
pub fn classify(relative: &[u8]) -> Shape {
    match content(relative) {
        Ok(text) => Shape::Content(Key::new(text)),
        Err(why) => Shape::Ignored(why),
    }
}

/// Whether a key given relative to `<prefix>/` is content, without making a [`Key`] of it.
#[must_use]
pub fn is_content(relative: &[u8]) -> bool {
    content(relative).is_ok()
}

fn content(relative: &[u8]) -> Result<&str, Ignored> {
    let text = std::str::from_utf8(relative).map_err(|_| Ignored::NotUtf8)?;
    if text == "plugins" {
        return Ok(text);
    }
    let Some((first, rest)) = text.split_once('/') else {
        return Err(if text.is_empty() { Ignored::EmptySegment } else { Ignored::Single });
    };
    if first == DATA_PLANE {
        return Err(Ignored::DataPlane);
    }
    if !first.is_empty() && rest.is_empty() {
        return Err(Ignored::Placeholder);
    }
    if text.split('/').any(str::is_empty) {
        return Err(Ignored::EmptySegment);
    }
    Ok(text)
}

impl Ignored {
    /// The reason as a metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotUtf8 => "not_utf8",
            Self::Placeholder => "placeholder",
            Self::Single => "single_segment",
            Self::EmptySegment => "empty_segment",
            Self::DataPlane => "data_plane",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_by_shape_alone() {
        for key in ["routes/1", "plugins", "unknown_kind/x", "consumers/j/credentials/c", "secrets/vault/1"] {
            assert_eq!(classify(key.as_bytes()), Shape::Content(Key::new(key)));
        }
    }

    #[test]
    fn what_is_not_content_and_why() {
        for (key, why) in [
            (&b"routes/"[..], Ignored::Placeholder),
            (b"gen_id", Ignored::Single),
            (b"data_plane/server_info/u", Ignored::DataPlane),
            (b"data_plane/headwater/approvals/1", Ignored::DataPlane),
            (b"data_plane/", Ignored::DataPlane),
            (b"routes//1", Ignored::EmptySegment),
            (b"/routes/1", Ignored::EmptySegment),
            (b"routes/1/", Ignored::EmptySegment),
            (b"", Ignored::EmptySegment),
            (b"plugins/", Ignored::Placeholder),
            (b"routes/\xff", Ignored::NotUtf8),
        ] {
            assert_eq!(classify(key), Shape::Ignored(why), "{key:?}");
        }
    }
}
