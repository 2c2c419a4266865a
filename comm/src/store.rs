//! Where the ranks of a group meet before they can talk: a key-value store of the framework.

use std::time::Duration;

use crate::Result;

/// A store all ranks of one group see, with keys of this group alone.
pub trait Store {
    /// Writes a value.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Waits until the key is there, at most `timeout`, and reads it.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;
}
