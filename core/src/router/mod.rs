//! The router, which ties operators to the configuration: a [`Router`] holds a
//! [`Registry`](crate::registry::Registry), resolves the [`Plan`](crate::policy::Plan), and rewrites the
//! operators' slots whenever the plan changes. It also has the routes that a program sets, the counters, and
//! the locking around a fork.

mod counters;
mod dispatch_log;
mod fallbacks;
mod fork;
mod publish;
mod routes;
mod scope;
mod state;

use std::sync::OnceLock;

pub use counters::Counters;
pub use dispatch_log::dispatch_line;
pub use fallbacks::FallbackRecord;
pub use state::{ContextToken, Discovery, FindVendors, Router};

/// The router of this process. It reads the configuration when it first resolves.
pub fn global() -> &'static Router {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    ROUTER.get_or_init(Router::of_process)
}

#[cfg(all(test, not(loom)))]
mod tests;
