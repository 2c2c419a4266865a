//! NVIDIA devices, over CUDA's driver library, which is found at run time.
//!
//! NVIDIA's management library ([`nvml`]) tells whether there are devices, because CUDA, once
//! initialised, is broken in every child forked afterwards. Opening the vendor initialises CUDA, and the
//! first call that needs the context of a device creates it. The context is the device's primary
//! context, which torch and CuPy share, so that memory and streams may pass between them.
//!
//! Differences from the host vendor:
//! - After a failure of queued work (an illegal address, say) the context is lost: every later call
//!   reports that failure, not only the first.
//! - Functions run by a stream must not call CUDA. Within them the core defers destroying and freeing, and
//!   refuses other calls with `Unsupported`. Functions of different streams may wait for each other.
//! - Copies to or from ordinary memory may wait until they have run.
//! - [`Vendor::pending`] stays 0.

mod api;
mod description;
mod device;
mod driver;
mod error;
mod event;
mod kernel;
mod nvml;
mod peer;
mod shape;
mod stream;
mod survey;
mod tensor_map;
mod visible;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use flagos_core::descriptions::Declared;
use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{Launcher, Module};
use flagos_core::runtime::{ALIGNMENT, DeviceProperties, Event, MemoryInfo, Stream, Vendor, sync};

use self::device::{Device, Discarded};
use self::error::cuda;
use self::event::CudaEvent;
use self::kernel::{CudaModule, LAUNCHER};
use self::stream::CudaStream;
use flagos_core::vendors::{BuiltIn, Settings};
use flagos_vendor_kit::stream_work;

inventory::submit! { ENTRY }
inventory::submit! { Declared(description::description) }

/// The CUDA vendor for [`flagos_core::vendors::built_in`]. Chosen before the host.
pub const ENTRY: BuiltIn = BuiltIn {
    description: description::description,
    rank: 100,
    survey,
    open: |settings, pending| {
        let expected = survey(settings).map_err(|reason| Error::device("cuda", reason))?;
        Ok(Arc::new(CudaVendor::new(expected, pending)?))
    },
    launcher: Some(|| &LAUNCHER),
};

fn survey(settings: &Settings) -> Result<usize, String> {
    survey::devices(
        settings
            .variables
            .get(visible::VARIABLE)
            .map(String::as_str),
    )
}

/// The CUDA vendor.
struct CudaVendor {
    devices: Box<[Arc<Device>]>,
    default_streams: Box<[Arc<CudaStream>]>,
    pending: &'static sync::AtomicU64,
}

impl CudaVendor {
    /// Initialises CUDA and describes the devices; creates no context.
    fn new(expected: usize, pending: &'static sync::AtomicU64) -> Result<Self> {
        let api = driver::initialize()?;
        let mut count = 0;
        // SAFETY: a valid output; CUDA is initialised.
        unsafe { cuda!(api, cuDeviceGetCount(&mut count)) }?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(Error::device("cuda", "CUDA shows no device")
                .with_hint("check CUDA_VISIBLE_DEVICES and `nvidia-smi`"));
        }
        if count != expected {
            tracing::warn!(
                expected,
                count,
                "CUDA and NVIDIA's management library show different numbers of devices"
            );
        }
        let devices = (0..count).map(|index| Device::new(api, index, count).map(Arc::new));
        let devices = devices.collect::<Result<Box<[_]>>>()?;
        let default_streams = devices
            .iter()
            .map(|device| Arc::new(CudaStream::default(device)))
            .collect();
        Ok(Self {
            devices,
            default_streams,
            pending,
        })
    }

    fn device(&self, device: usize) -> Result<&Arc<Device>> {
        let count = self.devices.len();
        self.devices.get(device).ok_or_else(|| {
            Error::invalid_argument("device", format!("there is no CUDA device {device}"))
                .with_hint(format!(
                    "there are {count}, numbered from 0; CUDA_VISIBLE_DEVICES chooses them"
                ))
        })
    }

    /// The device in whose context pinned memory is allocated: one that is in use already, else the first.
    fn any_device(&self) -> Result<&Arc<Device>> {
        let used = self.devices.iter().find(|device| device.is_used());
        used.map_or_else(|| self.device(0), Ok)
    }

    fn wait(&self, device: usize, operation: &'static str) -> Result<()> {
        let device = self.device(device)?;
        if !device.is_used() {
            // Nothing was ever queued, and a call of CUDA would create the context.
            return Ok(());
        }
        {
            let _entered = device.enter(operation)?;
            // SAFETY: the context is current.
            unsafe { cuda!(device.api, cuCtxSynchronize()) }
                .map_err(|error| device.located(error))?;
        }
        device.bury();
        Ok(())
    }
}

impl Vendor for CudaVendor {
    fn name(&self) -> &'static str {
        &description::description().name
    }

    fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        Ok(self.device(device)?.properties.clone())
    }

    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        let device = self.device(device)?;
        let (mut free, mut total) = (0, 0);
        let _entered = device.enter("memory")?;
        // SAFETY: valid outputs; the context is current.
        unsafe { cuda!(device.api, cuMemGetInfo_v2(&mut free, &mut total)) }
            .map_err(|error| device.located(error))?;
        // The total is that of the properties, so that both calls tell the same number.
        let total = device.properties.total_memory;
        Ok(MemoryInfo {
            free: (free as u64).min(total),
            total,
        })
    }

    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.device(device)?;
        if nbytes as u64 > device.properties.total_memory {
            let total = device.properties.total_memory;
            let message = format!("{nbytes} bytes on a device of {total}");
            return Err(device
                .located(Error::out_of_memory("alloc", message))
                .with_hint("check the shape"));
        }
        device.bury();
        let mut address = 0;
        let _entered = device.enter("alloc")?;
        // SAFETY: a valid output; the context is current.
        unsafe { cuda!(device.api, cuMemAlloc_v2(&mut address, nbytes)) }
            .map_err(|error| device.located(error).with_context("bytes", nbytes))?;
        match NonNull::new(address as usize as *mut u8) {
            Some(found) if address % ALIGNMENT as u64 == 0 => Ok(found),
            _ => {
                device.discard(Discarded::Memory(address));
                let message = format!("the driver gave the address {address:#x}");
                Err(device
                    .located(Error::device("cuMemAlloc", message))
                    .with_hint("this driver does not align memory to 512 bytes: please report it"))
            }
        }
    }

    unsafe fn free(&self, device: usize, address: NonNull<u8>, _nbytes: usize) {
        if let Some(device) = self.devices.get(device) {
            device.discard(Discarded::Memory(address.as_ptr() as u64));
        }
    }

    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.any_device()?;
        let mut address = std::ptr::null_mut();
        let _entered = device.enter("pinned_alloc")?;
        // SAFETY: a valid output; a context is current.
        unsafe {
            cuda!(
                device.api,
                cuMemHostAlloc(&mut address, nbytes, CU_MEMHOSTALLOC_PORTABLE)
            )
        }
        .map_err(|error| error.with_context("bytes", nbytes))?;
        NonNull::new(address.cast())
            .ok_or_else(|| Error::device("cuMemHostAlloc", "the driver gave the address 0"))
    }

    unsafe fn pinned_free(&self, address: NonNull<u8>, _nbytes: usize) {
        if let Ok(device) = self.any_device() {
            device.discard(Discarded::Pinned(address.as_ptr().cast()));
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
        Ok(Arc::new(CudaStream::new(device, priority)?))
    }

    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        let device = self.device(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { CudaStream::external(device, handle) }?;
        Ok(Arc::new(stream))
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        let device = self.device(device)?;
        device.bury();
        Ok(Arc::new(CudaEvent::new(device, timing)?))
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        self.wait(device, "device_sync")
    }

    /// Waits for all work. Fails on a lost context too, which reports its failure for ever.
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
        Ok(Box::new(CudaModule::load(self.device(device)?, image)?))
    }

    /// Always 0. The count tells host code when it may touch device memory, which no host code can touch here,
    /// and keeping it would cost a call on the host for every item queued.
    fn pending(&self) -> &sync::AtomicU64 {
        self.pending
    }
}
