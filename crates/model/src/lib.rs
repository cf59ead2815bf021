//! The vocabulary of Headwater, without I/O, clocks or randomness.
//!
//! What writer, replica and node must compute alike lives here: which keys are [content](shape), how a resource
//! and a content [hash](digest), what a [version] is and how two of them compare, the [difference](diff)
//! between two contents with its law `apply(a, diff(a, b)) == b`, and the [typed resources](resources) with
//! everything that makes a value usable or not.
//!
//! It must never know where values come from (etcd, a file, a stream) or who serves them.

pub mod content;
pub mod diff;
pub mod digest;
pub mod guard;
pub mod key;
pub mod mutant;
pub mod resource;
pub mod resources;
pub mod shape;
pub mod version;

pub use content::Content;
pub use diff::{Change, Changes};
pub use digest::Digest;
pub use key::{Key, Kind};
pub use resource::Resource;
pub use version::{Generation, Lineage, Revision, Version};
