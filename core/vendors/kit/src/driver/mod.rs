//! The back end of a driver's library: what every vendor with one does the same way.
//!
//! A vendor's device says by [`DriverDevice`] how it becomes current and what is given back to the driver. By
//! [`DriverMemory`], [`DriverEvents`] and [`DriverStreams`] it says which functions of the driver allocate, record and
//! queue; [`Devices`], [`DriverEvent`] and [`DriverStream`] are made of these. The device is current wherever one of these
//! functions is called, unless it says otherwise. By [`DriverSharing`] it may have [`Shared`] memory, too.

mod call;
mod device;
mod devices;
mod event;
mod peers;
mod process;
mod sharing;
mod stream;

pub use device::{Discarded, DriverDevice, Entered, Handle};
pub use devices::{Devices, DriverMemory};
pub use event::{DriverEvent, DriverEvents};
pub use peers::Peers;
pub use process::Process;
pub use sharing::{DriverSharing, Shared};
pub use stream::{DriverStream, DriverStreams};
