//! Vendors behind the C interface of `include/flagos_vendor.h`: a library of its own, or code linked into the program.
//!
//! [`Library::load`] opens a library and [`Library::adopt`] takes an entry function; both negotiate the version, check the
//! table, and copy it, so that a [`Library`] holds nothing unchecked. [`open`] makes a [`Vendor`](crate::runtime::Vendor) of
//! it. Rules of the interface: every struct begins with its size, and nobody reads or writes beyond the other's.

mod description;
mod event;
mod host;
mod instance;
mod loaded;
mod status;
mod stream;
mod table;
mod text;
mod types;
mod vendor;

pub use description::{Description, NeededLibrary, Serving, Variable};
pub use loaded::Library;
pub use types::*;
pub use vendor::open;
