//! Vendors behind the C interfaces of `include/flagos_vendor.h` and `include/flagos_kernels.h`: a library of its own, or
//! code linked into the program.
//!
//! [`Library::load`] opens a library and [`Library::adopt`] takes entry functions; both negotiate the versions, check the
//! tables, and copy them, so that a [`Library`] holds nothing unchecked. [`open`] makes a [`Vendor`](crate::runtime::Vendor) of
//! it; the crate `flagos-vendor-kit` makes such a table of a vendor of Rust. Rules of the interface: every struct begins with its size, and
//! nobody reads or writes beyond the other's.

mod call;
mod description;
mod elf;
mod event;
mod given;
mod graph;
mod host;
mod instance;
mod kernels;
mod launch;
mod loaded;
mod queue;
mod sharing;
mod status;
mod step;
mod stream;
mod table;
mod text;
mod types;
mod vendor;

pub(crate) use host::mute;
pub use host::{takes, versions_taken};
pub use kernels::*;
pub use loaded::Library;
pub use queue::{counts as queue_counts, inject as inject_into_queues};
pub use status::status_of;
pub use step::Step;
pub use types::*;
pub use vendor::open;
