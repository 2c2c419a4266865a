//! The description of a group from which an engine makes a communicator.

use std::path::PathBuf;
use std::time::Duration;

/// What a communicator is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// The engine's name; none lets the memory and the vendor decide.
    pub engine: Option<String>,
    /// The file of the engine's library; none searches.
    pub library: Option<PathBuf>,
    /// The vendor whose memory the buffers are: `host`, `cuda`, ...
    pub vendor: String,
    /// This rank.
    pub rank: usize,
    /// Ranks of the group.
    pub size: usize,
    /// The name of the group, for messages.
    pub group: String,
    /// How long to wait for the others to connect.
    pub timeout: Duration,
    /// Bytes of a window of the engine `shm`, a multiple of 4096.
    pub window: usize,
}
