//! The vendor: its devices, and the calls that concern one of them.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::Place;
use flagos_core::runtime::launch::{Launcher, Module};
use flagos_core::runtime::{
    DeviceProperties, Event, Exported, MemoryInfo, Sharing, Stream, Vendor, sync,
};
use flagos_vendor_kit::allocations::Allocations;
use flagos_vendor_kit::imports::Imports;
use flagos_vendor_kit::stream_work;

use super::api::HOST_DEFAULT;
use super::device::{Device, Discarded};
use super::error::mc;
use super::event::MetaxEvent;
use super::kernel::{LAUNCHER, MetaxModule};
use super::stream::MetaxStream;
use super::{description, driver, properties, shared, visible};

/// The MetaX vendor.
pub(super) struct MetaxVendor {
    pub(super) devices: Box<[Arc<Device>]>,
    default_streams: Box<[Arc<MetaxStream>]>,
    allocations: Arc<Allocations>,
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
        let devices: Box<[_]> = (0..count)
            .map(|index| Arc::new(Device::new(api, index, count, Arc::clone(&allocations))))
            .collect();
        Ok(Self {
            default_streams: devices
                .iter()
                .map(|device| Arc::new(MetaxStream::default(device)))
                .collect(),
            devices,
            allocations,
            imports: Imports::default(),
            pending,
        })
    }

    fn device(&self, device: usize) -> Result<&Arc<Device>> {
        let count = self.devices.len();
        self.devices.get(device).ok_or_else(|| {
            Error::invalid_argument("device", format!("there is no MetaX device {device}"))
                .with_hint(format!(
                    "there are {count}, numbered from 0; {} chooses them",
                    visible::VARIABLE
                ))
        })
    }

    /// The device that is current while pinned memory is allocated: one that is in use already, else the first.
    fn any_device(&self) -> Result<&Arc<Device>> {
        let used = self.devices.iter().find(|device| device.is_used());
        used.map_or_else(|| self.device(0), Ok)
    }

    fn described(&self, device: usize) -> Result<&DeviceProperties> {
        let device = self.device(device)?;
        if let Some(known) = device.properties.get() {
            return Ok(known);
        }
        let properties = properties::describe(device)?;
        Ok(device.properties.get_or_init(|| properties))
    }

    fn wait(&self, device: usize, operation: &'static str) -> Result<()> {
        let device = self.device(device)?;
        if driver::is_forked() {
            return Err(Error::forked(operation));
        }
        if !device.is_used() {
            // Nothing was ever queued, and a call would begin to use the device.
            return Ok(());
        }
        {
            let _entered = device.enter(operation)?;
            // SAFETY: the device is current.
            unsafe { mc!(device.api, mcDeviceSynchronize()) }
                .map_err(|error| device.located(error))?;
        }
        device.bury();
        Ok(())
    }
}

impl Vendor for MetaxVendor {
    fn name(&self) -> &'static str {
        &description::description().name
    }

    fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        self.described(device).cloned()
    }

    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        // The total is that of the properties, so that both calls tell the same number.
        let total = self.described(device)?.total_memory;
        let device = self.device(device)?;
        let _entered = device.enter("memory")?;
        let (free, _) = properties::memory(device.api).map_err(|error| device.located(error))?;
        Ok(MemoryInfo {
            free: (free as u64).min(total),
            total,
        })
    }

    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let total = self.described(device)?.total_memory;
        let device = self.device(device)?;
        if nbytes as u64 > total {
            let message = format!("{nbytes} bytes on a device of {total}");
            return Err(device
                .located(Error::out_of_memory("alloc", message))
                .with_hint("check the shape"));
        }
        device.bury();
        let _entered = device.enter("alloc")?;
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output; the device is current.
            unsafe { mc!(device.api, mcMalloc(&mut address, nbytes)) }.map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { mc!(device.api, mcFree(address)) };
        let place = Place::Device(device.index);
        let allocated = self.allocations.alloc(nbytes, place, give, take_back);
        allocated.map_err(|error| device.located(error).with_context("bytes", nbytes))
    }

    unsafe fn free(&self, device: usize, address: NonNull<u8>, _nbytes: usize) {
        if let Some(device) = self.devices.get(device) {
            device.discard(Discarded::Memory(self.allocations.forget(address)));
        }
    }

    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.any_device()?;
        let _entered = device.enter("pinned_alloc")?;
        let give = |nbytes| {
            let mut address = null_mut();
            // SAFETY: a valid output.
            unsafe { mc!(device.api, mcMallocHost(&mut address, nbytes, HOST_DEFAULT)) }
                .map(|()| address)
        };
        // SAFETY: just allocated.
        let take_back = |address| unsafe { mc!(device.api, mcFreeHost(address)) };
        let allocated = self
            .allocations
            .alloc(nbytes, Place::Pinned, give, take_back);
        allocated.map_err(|error| error.with_context("bytes", nbytes))
    }

    unsafe fn pinned_free(&self, address: NonNull<u8>, _nbytes: usize) {
        if let Ok(device) = self.any_device() {
            device.discard(Discarded::Pinned(self.allocations.forget(address)));
        }
    }

    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        self.device(device)?;
        let stream = Arc::clone(&self.default_streams[device]);
        Ok(stream)
    }

    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        let device = self.device(device)?;
        device.bury();
        Ok(Arc::new(MetaxStream::new(device, priority)?))
    }

    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        let device = self.device(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { MetaxStream::external(device, handle) }?;
        Ok(Arc::new(stream))
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        let device = self.device(device)?;
        device.bury();
        Ok(Arc::new(MetaxEvent::new(device, timing)?))
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        self.wait(device, "device_sync")
    }

    /// Waits for all work. Fails on a lost device too, which reports its failure for ever.
    fn quiesce(&self, device: usize) -> Result<()> {
        self.wait(device, "quiesce")
    }

    fn in_stream_work(&self) -> bool {
        stream_work::is_current()
    }

    /// False: the host does not compute on device memory, it copies and waits for the copy.
    fn host_computes(&self) -> bool {
        false
    }

    fn launcher(&self) -> Result<&dyn Launcher> {
        Ok(&LAUNCHER)
    }

    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        Ok(Box::new(MetaxModule::load(self.device(device)?, image)?))
    }

    fn sharing(&self) -> Result<&dyn Sharing> {
        shared::Functions::of(self.device(0)?.api)?;
        Ok(self)
    }

    /// Always 0: no host code touches device memory, so it waits for nothing.
    fn pending(&self) -> &sync::AtomicU64 {
        self.pending
    }
}

impl Sharing for MetaxVendor {
    fn export(&self, device: usize, address: NonNull<u8>) -> Result<Exported> {
        shared::export(self.device(device)?, &self.imports, address)
    }

    unsafe fn import(&self, device: usize, key: &str, nbytes: usize) -> Result<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { shared::import(self.device(device)?, &self.imports, key, nbytes) }
    }

    unsafe fn close(&self, device: usize, address: NonNull<u8>) {
        let closed = self
            .device(device)
            .and_then(|device| shared::close(device, &self.imports, address));
        if let Err(error) = closed {
            tracing::error!(device, %error, "imported memory was not closed");
        }
    }

    fn close_all(&self) {
        if !driver::is_forked() {
            shared::close_all(&self.devices, &self.imports);
        }
    }
}
