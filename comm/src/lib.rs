//! Collectives between the processes of one program.
//!
//! A [`Communicator`] is one rank's end of a group. Engines make them: [`shm`] is built in and serves
//! the processes of one host on host memory; those of [`library`] load a vendor's library at run time
//! and queue their work on a device's streams. Nothing here knows a framework, a device or the
//! environment: an adapter hands in pointers, streams, a rendezvous [`Store`] and the engine's name.
//!
//! * [`collective`] describes one call; [`dtype`] and [`reduce`] what it moves and how it is reduced.
//! * [`communicator`] is the trait, [`config`] what a communicator is made of, [`engine`] chooses among the engines.
//! * [`group`] is a framework's process group: communicators on host and devices, lanes, the flight recorder.
//! * [`abi`] is the C table of all this.
//!
//! Under `cfg(loom)` only what is checked there is compiled: the flags of [`shm`].

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
