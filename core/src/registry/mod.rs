//! Operators, their implementations, and the slots that routes are published into.
//!
//! An operator is a namespaced name, `aten::add.Tensor`, interned once into an [`OpId`]. Adapters keep the
//! address of its [`OpSlot`] and read the slot on every call, without lock, environment or strings. The
//! [`Router`](crate::router::Router) above writes the slots.

mod implementation;
mod namespace;
mod op;
mod slot;
mod suggest;
mod table;

pub use implementation::{Availability, Callable, Condition, Implementation, Kind, Verdict};
pub use namespace::Namespace;
pub use op::{DEFAULT_NAMESPACE, OpId, OpName};
pub(crate) use slot::Ordering;
pub use slot::{Decision, FLAG_LOG_DISPATCH, OpSlot, Route};
pub(crate) use suggest::suggest;
pub use table::{Op, Registry};

#[cfg(all(test, loom))]
mod loom_tests;
