//! Collectives between the processes of one program.
//!
//! A [`Communicator`] is one rank's end of a group. Engines make communicators: [`shm`] is built in and serves
//! the processes of one host on host memory; those of [`library`] load a vendor's library at run time
//! and queue their work on a device's streams. This crate knows no framework, no device and no environment: an
//! adapter passes pointers, streams, a rendezvous [`Store`] and the engine's name.
//!
//! * [`collective`] describes one call, [`dtype`] its elements, and [`reduce`] its reduction.
//! * [`communicator`] is the trait, [`config`] the description of a group, [`engine`] chooses among the engines.
//! * [`gathered`] counts the reductions that an engine lacks and callers compose.
//! * [`group`] is a framework's process group: communicators on host and devices, lanes, the flight recorder.
//! * [`abi`] is the C table.
//!
//! Under `cfg(loom)` only the flags of [`shm`] are compiled, which loom checks.

#[cfg(not(loom))]
pub mod abi;
#[cfg(not(loom))]
pub mod collective;
#[cfg(not(loom))]
pub mod communicator;
#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod dtype;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
pub mod gathered;
#[cfg(not(loom))]
pub mod group;
#[cfg(not(loom))]
pub mod library;
#[cfg(not(loom))]
pub mod reduce;
pub mod shm;
#[cfg(not(loom))]
pub mod store;

#[cfg(not(loom))]
pub use {
    collective::{Collective, Kind},
    communicator::{Communicator, Stream},
    config::Config,
    dtype::DType,
    error::{Error, ErrorKind, Result},
    group::Group,
    reduce::ReduceOp,
    store::Store,
};
