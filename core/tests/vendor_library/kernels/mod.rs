//! The kernels of the example chip, called through their table as a host calls them, beside plain arithmetic.

mod arithmetic;
mod caller;
mod copies;
mod queued;
mod random;
mod reductions;
mod refused;
mod tensor;
