//! The engines of vendors: each uses a library found at run time, which queues work on a device's streams.
//!
//! A module adapts the library's interface to the trait [`Dialect`]: [`nccl`] that of NCCL and of every library
//! with the same interface, [`flagcx`] and [`hccl`] their own. [`table`] states the types and operations of a library,
//! and [`communicator`] composes a collective that a library lacks of others. [`acl`] makes a device of Ascend the current one.

mod acl;
mod bindings;
mod communicator;
mod dialect;
mod flagcx;
mod hccl;
mod id;
mod nccl;
mod search;
mod table;

pub use self::table::Lacking;

use self::dialect::Dialect;
use self::table::Table;
use crate::{Communicator, Config, Error, ErrorKind, Result, Store};

/// Connects a rank through the library of `engine`.
pub fn connect(engine: &str, config: &Config, store: &dyn Store) -> Result<Box<dyn Communicator>> {
    let context = acl::Context::of(config)?;
    let dialect: Box<dyn Dialect> = match engine {
        "nccl" => Box::new(nccl::Nccl::connect(&nccl::NCCL, config, store)?),
        "mccl" => Box::new(nccl::Nccl::connect(&nccl::MCCL, config, store)?),
        "flagcx" => Box::new(flagcx::FlagCx::connect(config, store)?),
        "hccl" => Box::new(hccl::Hccl::connect(config, store)?),
        other => {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{other} has no library"),
            ));
        }
    };
    Ok(Box::new(communicator::LibraryCommunicator::new(
        dialect, context, config,
    )))
}

/// What is known of a library without connecting.
#[derive(Debug, Clone)]
pub struct Probed {
    /// The library's name, and its version if it tells it.
    pub library: String,
    /// The reductions that it lacks.
    pub lacking: Vec<Lacking>,
}

/// Opens the library of `engine` without connecting.
pub fn probe(engine: &str, config: &Config) -> Result<Probed> {
    let (library, table): (_, Box<dyn Table>) = match engine {
        "nccl" => (nccl::probe(&nccl::NCCL, config)?, Box::new(nccl::Codes)),
        "mccl" => (nccl::probe(&nccl::MCCL, config)?, Box::new(nccl::Codes)),
        "flagcx" => (flagcx::probe(config)?, Box::new(flagcx::Codes::of(config))),
        "hccl" => (hccl::probe(config)?, Box::new(hccl::Codes::of(config))),
        other => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{other} is not an engine with a library"),
            ));
        }
    };
    let lacking = table::lacking(&*table);
    Ok(Probed { library, lacking })
}
