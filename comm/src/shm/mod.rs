//! The engine of one host: ranks are processes that share memory, buffers are host memory.
//!
//! A collective is a sequence of *steps*. In a step a rank writes its contribution into a window of its own,
//! publishes the step's number, waits for the ranks it reads from, and reads their windows. A published
//! number also means that the rank has read the windows of all earlier steps, so that with two windows it
//! writes one while others still read the other. Results are reduced in the order of the ranks, each element
//! by one rank or by all in the same way, so that every rank gets the same bits.

mod flag;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(not(loom))]
mod channels;
#[cfg(not(loom))]
mod collectives;
#[cfg(not(loom))]
mod communicator;
#[cfg(not(loom))]
mod member;
#[cfg(not(loom))]
mod peers;
#[cfg(not(loom))]
mod rendezvous;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod steps;

#[cfg(not(loom))]
pub use {communicator::Shm, rendezvous::connect};

#[cfg(all(test, not(loom)))]
mod tests;
