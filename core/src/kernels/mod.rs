//! Compiled kernels: launching them with what was decided once.
//!
//! A [`Launch`] is everything about one launch of a kernel but the addresses: it is checked and laid out
//! when it is made, and then run many times with other pointers. The memory and the stream may be anyone's,
//! as inside torch.

mod launch;
mod parameters;

pub use launch::{Launch, LaunchSpec};
pub use parameters::{Parameter, Parameters};
