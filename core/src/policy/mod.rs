//! Which implementation serves an operator: layers of configuration, parsed into one value and
//! resolved into a plan.
//!
//! Data flows one way. Each layer is parsed into a [`Layer`] whose every entry has its [`Source`];
//! [`Policy::from_layers`] merges the layers; [`resolve_all`] decides, without side effects, and returns a
//! [`Plan`]: for every operator the winner, each loser with its reason, and the source of the decision.
//!
//! Layers, the weakest first: built-in defaults, `flagos.toml`, `backends.conf`, the environment
//! (variables an adapter reads, then those of flagos), calls of the API, the active context.
//!
//! A route lists alternatives, and the first usable one wins. Without a usable one the operator is blocked: a
//! call raises the reason. An operator never runs elsewhere in silence.

mod adapter;
mod backends_conf;
mod config;
mod environment;
mod explain;
mod file;
mod flagos_toml;
mod layer;
mod lock;
mod pattern;
mod plan;
mod print;
mod resolve;
mod selector;
mod source;

use std::path::Path;

pub use adapter::AdapterEnv;
pub use config::Config;
pub(crate) use config::vendor_path;
pub use environment::layer as environment_layer;
pub use explain::{ExplainedFallbacks, ExplainedImplementation, Explanation};
pub(crate) use file::remedy;
pub use file::{Disk, Files};
pub use flagos_toml::Document;
pub use layer::{Layer, Policy, Route, Scoped};
pub use pattern::OpPattern;
pub use plan::{Plan, PlanEntry, PlannedImplementation, Reason};
pub use print::{to_backends_conf, to_toml};
pub use resolve::{check, resolve_all, resolve_one};
pub(crate) use resolve::{check_layer, matched, resolve_some};
pub(crate) use selector::valid_name;
pub use selector::{Backend, Selector, SelectorError};
pub use source::{Source, Sourced};

use crate::Result;
use crate::descriptions::Names;

/// Reads a `flagos.toml` and the files it includes.
pub fn read_flagos_toml(files: &dyn Files, path: &Path, names: &Names) -> Result<Document> {
    flagos_toml::read(&mut file::Includes::new(files, names), path, None)
}

/// Reads a `backends.conf` and the files it includes.
pub fn read_backends_conf(files: &dyn Files, path: &Path, names: &Names) -> Result<Layer> {
    backends_conf::read(&mut file::Includes::new(files, names), path, None)
}

#[cfg(test)]
mod tests;
