//! The description of a group from which an engine makes a communicator.

use std::path::PathBuf;
use std::time::Duration;

/// The description of a group for one rank.
#[derive(Debug, Clone)]
pub struct Config {
    /// The engine's name; without one, the vendor decides.
    pub engine: Option<String>,
    /// The file of the engine's library; without one, the library is searched by name.
    pub library: Option<PathBuf>,
    /// The vendor of the buffers' memory, for messages.
    pub vendor: String,
    /// The engine for that memory, which the vendor's description names; `shm` only for memory that the host addresses.
    pub vendor_engine: Option<String>,
    /// The device of the buffers, as its vendor counts; negative for host memory.
    pub device: i32,
    /// The number of this rank.
    pub rank: usize,
    /// The number of ranks in the group.
    pub size: usize,
    /// The name of the group, for messages.
    pub group: String,
    /// The longest time to wait for the other ranks to connect.
    pub timeout: Duration,
    /// Bytes of a window of the engine `shm`, a multiple of 4096.
    pub window: usize,
}
