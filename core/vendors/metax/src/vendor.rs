//! The vendor: its devices, and the calls that concern one of them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{Launcher, Module};
use flagos_core::runtime::{Event, Exported, Sharing, Stream, Vendor, sync};
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::devices_answer;
use flagos_vendor_kit::driver::{Devices, DriverStream};
use flagos_vendor_kit::imports::Imports;

use super::device::Device;
use super::kernel::{LAUNCHER, MetaxModule};
use super::{description, driver, shared, visible};

/// The MetaX vendor.
pub(super) struct MetaxVendor {
    pub(super) devices: Devices<Device>,
    default_streams: Box<[Arc<DriverStream<Device>>]>,
    imports: Imports,
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
            devices,
            imports: Imports::default(),
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
        shared::Functions::of(self.devices.device(0)?.api)?;
        Ok(self)
    }
}

impl Sharing for MetaxVendor {
    fn export(&self, device: usize, address: NonNull<u8>) -> Result<Exported> {
        shared::export(self.devices.device(device)?, &self.imports, address)
    }

    unsafe fn import(&self, device: usize, key: &str, nbytes: usize) -> Result<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { shared::import(self.devices.device(device)?, &self.imports, key, nbytes) }
    }

    unsafe fn close(&self, device: usize, address: NonNull<u8>) {
        let closed = self
            .devices
            .device(device)
            .and_then(|device| shared::close(device, &self.imports, address));
        if let Err(error) = closed {
            tracing::error!(device, %error, "imported memory was not closed");
        }
    }

    fn close_all(&self) {
        if !driver::PROCESS.is_forked() {
            shared::close_all(&self.devices, &self.imports);
        }
    }
}
