//! The vendor: its devices, and the calls that concern one of them.

use std::ffi::c_void;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{Launcher, Module};
use flagos_core::runtime::{Event, Sharing, Stream, Vendor, sync};
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::devices_answer;
use flagos_vendor_kit::driver::{Devices, DriverStream, Shared};

use super::device::Device;
use super::kernel::{LAUNCHER, MetaxModule};
use super::{description, driver, visible};

/// The MetaX vendor.
pub(super) struct MetaxVendor {
    pub(super) devices: Devices<Device>,
    default_streams: Box<[Arc<DriverStream<Device>>]>,
    shared: Shared<Device>,
    pending: &'static sync::AtomicU64,
}

impl MetaxVendor {
    /// Initialises the runtime; uses no device.
    pub(super) fn new(pending: &'static sync::AtomicU64) -> Result<Self> {
        let (api, count) = driver::initialize()?;
        if count == 0 {
            let told = visible::told(|name| std::env::var(name).ok());
            return Err(
                Error::device("metax", format!("MACA's runtime shows no device: {told}"))
                    .with_hint("`mx-smi` lists the devices of this machine"),
            );
        }
        let allocations = Arc::<Allocations>::default();
        let devices: Devices<_> = (0..count)
            .map(|index| Device::new(api, index, count, Arc::clone(&allocations)))
            .collect();
        Ok(Self {
            default_streams: devices
                .iter()
                .map(|device| Arc::new(DriverStream::default(device)))
                .collect(),
            shared: Shared::new(&devices),
            devices,
            pending,
        })
    }

    fn wait(&self, device: usize, operation: &'static str) -> Result<()> {
        if driver::PROCESS.is_forked() {
            return Err(Error::forked(operation));
        }
        self.devices.wait(device, operation)
    }
}

impl Vendor for MetaxVendor {
    devices_answer!();

    fn name(&self) -> &'static str {
        &description::description().name
    }

    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        self.devices.device(device)?;
        let stream = Arc::clone(&self.default_streams[device]);
        Ok(stream)
    }

    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        self.devices.stream(device, priority)
    }

    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        // SAFETY: the caller's promise.
        unsafe { self.devices.external_stream(device, handle) }
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        self.devices.event(device, timing)
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        self.wait(device, "device_sync")
    }

    /// Waits for all work. Fails on a lost device too, which reports its failure for ever.
    fn quiesce(&self, device: usize) -> Result<()> {
        self.wait(device, "quiesce")
    }

    fn launcher(&self) -> Result<&dyn Launcher> {
        Ok(&LAUNCHER)
    }

    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        Ok(Box::new(MetaxModule::load(
            self.devices.device(device)?,
            image,
        )?))
    }

    fn sharing(&self) -> Result<&dyn Sharing> {
        self.shared.capability()
    }
}
