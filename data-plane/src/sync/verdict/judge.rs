//! Who decides whether a value can be used.

use std::collections::BTreeSet;

use headwater_model::resources::{self, Context, Typed};
use headwater_model::{Key, Resource};

/// Decides over one value, by itself alone.
pub trait Judge {
    /// The usable form.
    ///
    /// # Errors
    /// Why it cannot be used: one sentence that names the field.
    fn judge(&self, resource: &Resource) -> Result<Typed, String>;

    /// The keys that a usable value is served with.
    fn references(&self, resource: &Resource, typed: &Typed) -> Vec<Key>;
}

/// Judges by the model's rules, the same as the admin's validation.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// What parsing needs to know.
    pub context: Context,
    /// Keys of governing values that the operator allows to be passed over.
    pub allowed: BTreeSet<String>,
}

// === impl Values ===

impl Judge for Values {
    fn judge(&self, resource: &Resource) -> Result<Typed, String> {
        let key = resource.key();
        match resources::parse(key, resource.value(), &self.context) {
            Ok(Typed::Governing(_)) if self.allowed.contains(key.as_str()) => Ok(Typed::Inert),
            Ok(typed) => Ok(typed),
            Err(invalid) => Err(invalid.to_string()),
        }
    }

    fn references(&self, _resource: &Resource, typed: &Typed) -> Vec<Key> {
        resources::references(typed)
    }
}
