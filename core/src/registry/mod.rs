//! Operators, their implementations, and the slots routes are published into.
//!
//! An operator is a namespaced name, `aten::add.Tensor`, interned once into an [`OpId`]. Adapters
//! keep the address of its [`OpSlot`] and read it on every call: no environment, no lock, no
//! strings. The [`Engine`] ties a [`Registry`] to the configuration: it resolves the
//! [`Plan`](crate::policy::Plan) and rewrites the slots whenever the plan changes.

mod counters;
mod engine;
mod fork;
mod implementation;
mod namespace;
mod op;
mod publish;
mod routes;
mod slot;
mod table;

use std::sync::OnceLock;

pub use counters::{Counters, FallbackRecord};
pub use engine::{ContextToken, Engine};
pub use implementation::{Availability, Callable, Condition, Impl, Kind, Verdict};
pub use namespace::Namespace;
pub use op::{OpId, OpName, DEFAULT_NAMESPACE};
pub use slot::{Decision, OpSlot, Route, FLAG_LOG_DISPATCH};
pub use table::{Op, Registry};

/// The engine of this process. It reads the configuration when it first resolves, not before.
pub fn global() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(Engine::of_process)
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
