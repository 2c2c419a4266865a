//! Compiled kernels: launches that are checked once and run many times.
//!
//! A [`Launch`] holds everything about one launch of a kernel except the addresses: it is checked and laid
//! out once, and then run many times with other pointers. Memory and stream may belong to any library of the
//! process, such as torch.

mod launch;
mod parameters;
mod recording;

pub use launch::{Launch, LaunchSpec};
pub use parameters::{Parameter, Parameters};
pub use recording::{Block, Limits, Number, Output, Place, RecordedLaunch, Recording, Step};
