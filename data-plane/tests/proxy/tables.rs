//! Resources as JSON made into a table.

use std::sync::Arc;

use headwater_data_plane::compile::{Served, Table};
use headwater_data_plane::upstream::{Upstream, Upstreams};
use headwater_model::resources::{self, Context};
use headwater_model::{Key, Resource, Revision};
use serde_json::Value;

/// The table of these resources, all of which must be usable.
pub(crate) fn compile(resources: &[(&str, Value)], upstreams: &Upstreams) -> Table<Arc<Upstream>> {
    let served = resources.iter().map(|(key, value)| {
        let key = Key::new(*key);
        let value = value.to_string();
        let typed = resources::parse(&key, value.as_bytes(), &Context::default()).unwrap();
        let resource = Resource::new(key, value.into(), Revision(1), Revision(1));
        Served { resource: Arc::new(resource), typed, kept: None }
    });
    Table::full(served.collect::<Vec<_>>(), [], upstreams).0
}
