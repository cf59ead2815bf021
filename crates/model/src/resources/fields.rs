//! Reading a JSON object field by field: each is taken once by name, and what is left over is unknown.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::invalid::Invalid;

/// Whole numbers beyond this are not exact in JSON as most writers produce it (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

/// An object whose fields are being taken.
pub(super) struct Fields {
    /// What the object is, for messages: `route`.
    what: &'static str,
    path: String,
    values: Map<String, Value>,
}

/// One value with the dotted path that leads to it.
pub(super) struct Item {
    pub(super) path: String,
    pub(super) value: Value,
}

// === impl Fields ===

impl Fields {
    /// The whole value of a resource, which must be a JSON object.
    pub(super) fn root(what: &'static str, value: &[u8]) -> Result<Self, Invalid> {
        let value = serde_json::from_slice(value)
            .map_err(|error| Invalid::new("", format!("is not JSON ({error}); store a JSON object")))?;
        Item { path: String::new(), value }.object(what)
    }

    /// Takes a field; `None` when it is absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Item> {
        let value = self.values.remove(name)?;
        Some(Item { path: self.path_of(name), value })
    }

    /// Takes a field and reads it with `read`.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Item) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Invalid> {
        self.take(name).map(read).transpose()
    }

    /// Takes a field that must be there.
    pub(super) fn required(&mut self, name: &str) -> Result<Item, Invalid> {
        self.take(name).ok_or_else(|| Invalid::new(self.path_of(name), "is missing; a value is required"))
    }

    /// Refuses a field of the schema by name, whatever its value.
    pub(super) fn refuse(&mut self, name: &str, why: &str) -> Result<(), Invalid> {
        match self.take(name) {
            Some(item) => Err(Invalid::not_yet(item.path, why, "remove the field")),
            None => Ok(()),
        }
    }

    /// Whether a field is there and not yet taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The dotted path of a field of this object.
    pub(super) fn path_of(&self, name: &str) -> String {
        joined(&self.path, name)
    }

    /// An error about a field of this object.
    pub(super) fn invalid(&self, name: &str, problem: impl Into<String>) -> Invalid {
        Invalid::new(self.path_of(name), problem)
    }

    /// Fails when a field is left that nobody took.
    pub(super) fn finish(self) -> Result<(), Invalid> {
        match self.values.keys().next() {
            Some(name) => {
                Err(self
                    .invalid(name, format!("is not a field of {}; remove it or correct its name", self.what)))
            }
            None => Ok(()),
        }
    }

    /// Every field that is left, as items, in the order of their names.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Item)> {
        let path = self.path;
        self.values.into_iter().map(move |(name, value)| {
            let item = Item { path: joined(&path, &name), value };
            (name, item)
        })
    }
}

// === impl Item ===

impl Item {
    /// An error about this value.
    pub(super) fn invalid(&self, problem: impl Into<String>) -> Invalid {
        Invalid::new(self.path.clone(), problem)
    }

    /// Text of `min` to `max` characters.
    pub(super) fn string(self, min: usize, max: usize) -> Result<String, Invalid> {
        let Value::String(text) = self.value else {
            return Err(self.invalid("must be a string"));
        };
        let length = text.chars().count();
        if length < min || length > max {
            let problem = format!("has {length} characters; use {min} to {max}");
            return Err(Invalid::new(self.path, problem));
        }
        Ok(text)
    }

    /// A whole number; `1.0` counts as one.
    pub(super) fn integer(self) -> Result<i64, Invalid> {
        let whole = self.value.as_i64().or_else(|| {
            let number = self.value.as_f64()?;
            (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
        });
        whole.ok_or_else(|| self.invalid("must be a whole number between -2^53 and 2^53"))
    }

    /// A whole number within bounds, both included.
    pub(super) fn integer_within(self, min: i64, max: i64) -> Result<i64, Invalid> {
        let path = self.path.clone();
        let number = self.integer()?;
        if number < min || number > max {
            return Err(Invalid::new(path, format!("is {number}; use a whole number from {min} to {max}")));
        }
        Ok(number)
    }

    /// Any finite number.
    pub(super) fn number(self) -> Result<f64, Invalid> {
        self.value
            .as_f64()
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.invalid("must be a number"))
    }

    /// `true` or `false`.
    pub(super) fn boolean(self) -> Result<bool, Invalid> {
        self.value.as_bool().ok_or_else(|| self.invalid("must be true or false"))
    }

    /// An object, whose fields are then taken.
    pub(super) fn object(self, what: &'static str) -> Result<Fields, Invalid> {
        match self.value {
            Value::Object(values) => Ok(Fields { what, path: self.path, values }),
            _ => Err(self.invalid("must be a JSON object")),
        }
    }

    /// An array's items.
    pub(super) fn array(self) -> Result<Vec<Self>, Invalid> {
        let Value::Array(values) = self.value else {
            return Err(self.invalid("must be an array"));
        };
        let path = self.path;
        let items = values.into_iter().enumerate();
        Ok(items.map(|(index, value)| Self { path: joined(&path, &index.to_string()), value }).collect())
    }

    /// An array of at least `min` different values, each read with `read`. Values that are written differently and
    /// read the same, as hosts in another case, count once.
    pub(super) fn set<T: Ord + Clone>(
        self,
        min: usize,
        read: impl Fn(Self) -> Result<T, Invalid>,
    ) -> Result<Vec<T>, Invalid> {
        let path = self.path.clone();
        let items = self.array()?;
        if items.len() < min {
            return Err(Invalid::new(path, format!("is empty; give at least {min} or leave the field out")));
        }
        let (mut written, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            if !written.insert(item.value.to_string()) {
                return Err(item.invalid("repeats an earlier one; remove it"));
            }
            let value = read(item)?;
            if seen.insert(value.clone()) {
                values.push(value);
            }
        }
        Ok(values)
    }

    /// An id: text of 1 to 64 letters, digits, `-`, `_`, `.`, or a whole number from 1 on, given back as text.
    pub(super) fn id(self) -> Result<String, Invalid> {
        if self.value.is_number() {
            return self.integer_within(1, i64::MAX).map(|number| number.to_string());
        }
        let path = self.path.clone();
        let text = self.string(1, 64)?;
        if is_id(&text) {
            return Ok(text);
        }
        Err(Invalid::new(
            path,
            "must be made of letters, digits, `-`, `_` and `.`, or be a whole number from 1 on",
        ))
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether text may be an id.
pub(super) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
