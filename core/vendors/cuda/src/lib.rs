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
mod device_memory;
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
use std::sync::Arc;

use flagos_core::descriptions::Declared;
use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::{Launcher, Module};
use flagos_core::runtime::{Event, Stream, Vendor, sync};
use flagos_core::vendors::{BuiltIn, Settings};
use flagos_vendor_kit::driver::{Devices, DriverStream};
use flagos_vendor_kit::{call, devices_answer};

use self::device::Device;
use self::kernel::{CudaModule, LAUNCHER};

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
    devices: Devices<Device>,
    default_streams: Box<[Arc<DriverStream<Device>>]>,
    pending: &'static sync::AtomicU64,
}

impl CudaVendor {
    /// Initialises CUDA and describes the devices; creates no context.
    fn new(expected: usize, pending: &'static sync::AtomicU64) -> Result<Self> {
        let api = driver::initialize()?;
        let mut count = 0;
        // SAFETY: a valid output; CUDA is initialised.
        unsafe { call!(api, cuDeviceGetCount(&mut count)) }?;
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
        let devices = (0..count).map(|index| Device::new(api, index, count));
        let devices = devices.collect::<Result<Devices<_>>>()?;
        let default_streams = devices
            .iter()
            .map(|device| Arc::new(DriverStream::default(device)))
            .collect();
        Ok(Self {
            devices,
            default_streams,
            pending,
        })
    }
}

impl Vendor for CudaVendor {
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
        self.devices.wait(device, "device_sync")
    }

    /// Waits for all work. Fails on a lost context too, which reports its failure for ever.
    fn quiesce(&self, device: usize) -> Result<()> {
        self.devices.wait(device, "quiesce")
    }

    fn launcher(&self) -> Result<&dyn Launcher> {
        Ok(&LAUNCHER)
    }

    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        Ok(Box::new(CudaModule::load(
            self.devices.device(device)?,
            image,
        )?))
    }
}
