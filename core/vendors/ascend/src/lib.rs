//! Ascend devices, over the ACL runtime of CANN, which is found at run time: a library of `flagos_vendor.h` and
//! `flagos_kernels.h`.
//!
//! Device files tell whether there are devices, because the runtime, once initialised, is broken in every child forked
//! afterwards; where there are none, no library is loaded. Opening the vendor initialises the runtime, and the first call
//! that needs the context of a device creates it: the device's default context, which all libraries share.
//!
//! Differences from the host vendor:
//! - After a failure of a kernel the device is lost: see [`error::is_lost`].
//! - Functions run by a stream must not call the runtime. Within them the core defers destroying and freeing, and refuses
//!   other calls with `Unsupported`. Before `aclrtLaunchHostFunc` existed, one thread makes all calls of a device.
//! - A copy that has ordinary memory on a side, or the host on both, is waited for.
//! - A stream that waits for an event of another device makes the calling thread wait.
//! - [`Vendor::pending`] stays 0.

mod api;
mod captures;
mod description;
mod device;
mod device_memory;
mod driver;
mod error;
mod event;
mod graph;
mod kernels;
mod memory;
mod peer;
mod properties;
mod reporter;
mod shared;
mod stream;
mod survey;
mod variables;
mod visible;

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use flagos_core::descriptions::Description;
use flagos_core::error::{Error, Result};
use flagos_core::runtime::{Event, Sharing, Stream, Vendor, sync};

use self::device::Device;
use self::stream::AscendStream;
use flagos_core::vendors::library::{
    FLAGOS_VENDOR_CAPTURES, FLAGOS_VENDOR_EXTERNAL_STREAMS, FLAGOS_VENDOR_NATIVE_HANDLES,
    FLAGOS_VENDOR_REACHES_PEERS, FLAGOS_VENDOR_SHARES,
};
use flagos_vendor_kit::driver::{Devices, DriverDevice as _, DriverEvent, Shared};
use flagos_vendor_kit::export::{Export, check_variables};
use flagos_vendor_kit::{call, devices_answer, export_kernels, export_vendor};

export_vendor!(Ascend);
export_kernels!(kernels::table);

/// What the library exports.
struct Ascend;

impl Export for Ascend {
    fn description() -> &'static Description {
        description::description()
    }

    fn capabilities() -> u64 {
        FLAGOS_VENDOR_NATIVE_HANDLES
            | FLAGOS_VENDOR_EXTERNAL_STREAMS
            | FLAGOS_VENDOR_CAPTURES
            | FLAGOS_VENDOR_SHARES
            | FLAGOS_VENDOR_REACHES_PEERS
    }

    fn probe() -> Result<usize, String> {
        check_variables(
            "ascend",
            &Self::description().variables,
            std::env::vars_os(),
        )?;
        kernels::most_executors(variables::value(variables::EXECUTORS).as_deref())?;
        survey::devices(variables::value(visible::VARIABLE).as_deref())
    }

    fn open(pending: &'static sync::AtomicU64) -> Result<Arc<dyn Vendor>> {
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("ascend"));
        }
        let expected = Self::probe().map_err(|reason| Error::device("ascend", reason))?;
        Ok(Arc::new(AscendVendor::new(expected, pending)?))
    }
}

/// The Ascend vendor.
struct AscendVendor {
    devices: Devices<Device>,
    default_streams: Box<[OnceLock<Arc<AscendStream>>]>,
    making_default: sync::Mutex<()>,
    padding: usize,
    shared: Shared<Device>,
    pending: &'static sync::AtomicU64,
}

impl AscendVendor {
    /// Initialises the runtime; creates no context.
    fn new(expected: usize, pending: &'static sync::AtomicU64) -> Result<Self> {
        let api = driver::initialize()?;
        let mut count = 0;
        // SAFETY: a valid output; the runtime is initialised.
        unsafe { call!(api, aclrtGetDeviceCount(&mut count)) }?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(Error::device("ascend", "the ACL runtime shows no device")
                .with_hint("check ASCEND_RT_VISIBLE_DEVICES and `npu-smi info`"));
        }
        if count != expected {
            tracing::warn!(
                expected,
                count,
                "the ACL runtime and the device files show different numbers of devices"
            );
        }
        let memory = Arc::default();
        let devices: Devices<_> = (0..count)
            .map(|index| Device::new(api, index, count, Arc::clone(&memory)))
            .collect();
        for device in devices.iter() {
            // Just made, so it is not set yet.
            let _ = device
                .siblings
                .set(devices.iter().map(Arc::downgrade).collect());
        }
        Ok(Self {
            default_streams: devices.iter().map(|_| OnceLock::new()).collect(),
            making_default: sync::Mutex::new(()),
            padding: memory::padding(api.chip().as_deref(), api.cann()),
            shared: Shared::new(&devices),
            devices,
            pending,
        })
    }

    /// The default stream, a stream that was created like any other.
    fn default_of(&self, device: usize) -> Result<Arc<AscendStream>> {
        let owner = self.devices.device(device)?;
        let slot = &self.default_streams[device];
        if let Some(made) = slot.get() {
            return Ok(Arc::clone(made));
        }
        let _one_at_a_time = self.making_default.lock();
        let made = match slot.get() {
            Some(made) => made,
            None => {
                let made = Arc::new(AscendStream::new(owner, 0)?);
                slot.get_or_init(|| made)
            }
        };
        Ok(Arc::clone(made))
    }
}

impl Vendor for AscendVendor {
    devices_answer!();

    fn name(&self) -> &'static str {
        &description::description().name
    }

    fn reaches(&self, device: usize, peer: usize) -> Result<bool> {
        let (device, peer) = (self.devices.device(device)?, self.devices.device(peer)?);
        if device.index == peer.index {
            return Ok(false);
        }
        let _entered = device.enter("reaches")?;
        peer::possible(device, peer.raw()).map_err(|error| device.located(error))
    }

    fn padding(&self) -> usize {
        self.padding
    }

    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        let stream = self.default_of(device)?;
        Ok(stream)
    }

    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        let device = self.devices.device(device)?;
        device.bury();
        Ok(Arc::new(AscendStream::new(device, priority)?))
    }

    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        if handle.is_null() {
            return self.default_stream(device);
        }
        let device = self.devices.device(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { AscendStream::external(device, handle) }?;
        Ok(Arc::new(stream))
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        let device = self.devices.device(device)?;
        Ok(Arc::new(DriverEvent::new(device, timing)?))
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        let device = self.devices.device(device)?;
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("device_sync"));
        }
        if !device.is_used() {
            // Nothing was ever queued, and a call would create the context.
            return Ok(());
        }
        device.refuse_in_capture("device_sync")?;
        let outcome = device.synchronize(|| {
            Device::refuse("device_sync")?;
            device.settle("device_sync")
        });
        device.reported(outcome)
    }

    /// Waits for all work. Fails on a lost device too.
    fn quiesce(&self, device: usize) -> Result<()> {
        let device = self.devices.device(device)?;
        if driver::PROCESS.is_forked() {
            return Err(Error::forked("quiesce"));
        }
        if !device.is_used() {
            return Ok(());
        }
        device.refuse_in_capture("quiesce")?;
        device.synchronize(|| device.settle("quiesce"))
    }

    fn sharing(&self) -> Result<&dyn Sharing> {
        self.shared.capability()
    }

    fn captures(&self) -> Result<()> {
        let device = self.devices.device(0)?;
        captures::Functions::of(device.api).map(drop)
    }
}
