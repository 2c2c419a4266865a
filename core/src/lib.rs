//! The core of flagos: one operator registry, one routing policy, one device runtime per process.
//!
//! Adapters (PyTorch and others) reach the core through the C table of [`abi`], or through the Python
//! module `flagos._core`. The core knows no framework.
//!
//! * [`registry`] interns operators, holds their implementations and the slots that calls read.
//! * [`policy`] parses every configuration layer into one value and resolves it into a plan.
//! * [`router`] ties registry and policy together: it publishes plans into slots, takes routes and counts.
//! * [`runtime`] is devices, memory, streams and events over any vendor of [`vendors`].
//! * [`kernels`] launches compiled kernels, with parameters that are laid out once.
//! * [`abi`] is the C table, and puts the other modules together.
//! * [`descriptions`] is what is special about vendors, as data, and their names.
//! * [`mod@env`] declares every environment variable.
//! * [`error`] is the one error type.

pub mod abi;
pub mod descriptions;
pub mod env;
pub mod error;
pub mod kernels;
mod nearest;
pub mod policy;
pub mod registry;
pub mod router;
pub mod runtime;
mod trusted;
pub mod vendors;

pub use error::{Error, ErrorKind, Result, visible};
