//! A device and its primary context, the one that torch, CuPy and every user of the CUDA runtime share.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

use cudarc::driver::sys::{CUctx_st, CUdevice, CUdevice_attribute, CUdeviceptr};
use parking_lot::Mutex;

use flagos_core::error::Result;
use flagos_core::runtime::DeviceProperties;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{Discarded, DriverDevice, Peers, Process};

use super::api::Api;
use super::driver::PROCESS;
use super::visible;

/// One device. Streams and events keep it alive.
pub(super) struct Device {
    pub(super) api: &'static Api,
    /// The device's number, which is also CUDA's ordinal.
    pub(super) index: usize,
    pub(super) raw: CUdevice,
    pub(super) properties: DeviceProperties,
    /// The primary context; null until the first use. It is never released, because other libraries may
    /// rely on it.
    context: AtomicPtr<CUctx_st>,
    retaining: Mutex<()>,
    pub(super) peers: Peers,
    discarded: Mutex<Vec<Discarded>>,
}

impl Device {
    /// Describes a device; creates no context.
    pub(super) fn new(api: &'static Api, index: usize, count: usize) -> Result<Self> {
        let mut raw = 0;
        let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: a valid output; CUDA is initialised, as only `initialize` gives out an `Api`.
        unsafe { call!(api, cuDeviceGet(&mut raw, ordinal)) }?;
        Ok(Self {
            api,
            index,
            raw,
            properties: describe(api, raw)?,
            context: AtomicPtr::default(),
            retaining: Mutex::new(()),
            peers: Peers::new(index, count),
            discarded: Mutex::default(),
        })
    }

    /// The primary context.
    pub(super) fn context(&self) -> Result<*mut CUctx_st> {
        let context = self.context.load(Ordering::Acquire);
        if !context.is_null() {
            return Ok(context);
        }
        self.retain()
    }

    #[cold]
    fn retain(&self) -> Result<*mut CUctx_st> {
        let _one_at_a_time = self.retaining.lock();
        let mut context = self.context.load(Ordering::Acquire);
        if context.is_null() {
            // SAFETY: a valid output and a valid device.
            unsafe { call!(self.api, cuDevicePrimaryCtxRetain(&mut context, self.raw)) }
                .map_err(|error| self.located(error))?;
            self.context.store(context, Ordering::Release);
        }
        Ok(context)
    }
}

impl DriverDevice for Device {
    const FAMILY: &'static str = "CUDA";
    const LIBRARY: &'static str = "CUDA";
    const VARIABLE: &'static str = visible::VARIABLE;

    type Current = *mut CUctx_st;
    type Discarded = Discarded;

    fn process() -> &'static Process {
        &PROCESS
    }

    #[inline]
    fn index(&self) -> usize {
        self.index
    }

    /// Makes the context current. Torch derives its current device from the one that was current before.
    #[inline]
    fn switch(&self, _operation: &'static str) -> Result<Option<*mut CUctx_st>> {
        let context = self.context()?;
        let mut before = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { call!(self.api, cuCtxGetCurrent(&mut before)) }?;
        if before == context {
            return Ok(None);
        }
        // SAFETY: a context that is never given back.
        unsafe { call!(self.api, cuCtxSetCurrent(context)) }
            .map_err(|error| self.located(error))?;
        // A thread without a context may keep that of device 0, which the CUDA runtime would choose too.
        let keep = before.is_null() && self.index == 0;
        Ok((!keep).then_some(before))
    }

    fn switch_back(&self, before: *mut CUctx_st) -> Result<()> {
        // SAFETY: what was current a moment ago on this thread, or null.
        unsafe { call!(self.api, cuCtxSetCurrent(before)) }
    }

    /// Whether the context has been created by us.
    fn is_used(&self) -> bool {
        !self.context.load(Ordering::Acquire).is_null()
    }

    fn discarded(&self) -> &Mutex<Vec<Discarded>> {
        &self.discarded
    }

    fn destroy(&self, item: &Discarded) -> Result<bool> {
        let _entered = self.enter("destroy")?;
        // SAFETY: callers discard only items that they own, and do not use them afterwards. CUDA keeps streams
        // and events until their work has run.
        unsafe {
            match *item {
                Discarded::Stream(stream) => call!(self.api, cuStreamDestroy_v2(stream.cast())),
                Discarded::Event(event) => call!(self.api, cuEventDestroy_v2(event.cast())),
                Discarded::Module(module) => call!(self.api, cuModuleUnload(module.cast())),
                Discarded::Memory(address) => call!(self.api, cuMemFree_v2(address as CUdeviceptr)),
                Discarded::Pinned(address) => call!(self.api, cuMemFreeHost(address)),
            }
        }
        .map(|()| true)
    }
}

fn describe(api: &Api, device: CUdevice) -> Result<DeviceProperties> {
    use CUdevice_attribute as A;
    let mut name = [0; 256];
    let mut total_memory = 0;
    // SAFETY: valid outputs of the sizes given, and a valid device.
    unsafe {
        call!(api, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        call!(api, cuDeviceTotalMem_v2(&mut total_memory, device))?;
    }
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: a valid output and a valid device.
        unsafe { call!(api, cuDeviceGetAttribute(&mut value, attribute, device)) }.map(|()| value)
    };
    // SAFETY: CUDA wrote at most 255 bytes, so that the last byte is 0.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(DeviceProperties {
        name: name.to_string_lossy().into_owned(),
        total_memory: total_memory as u64,
        multi_processor_count: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        major: attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        minor: attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    })
}
