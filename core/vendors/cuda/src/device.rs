//! A device and its primary context, the one that torch, CuPy and every user of the CUDA runtime share.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use cudarc::driver::sys::{
    CUctx_st, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUmodule, CUstream,
};
use parking_lot::Mutex;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::DeviceProperties;

use super::api::Api;
use super::driver;
use super::error::cuda;
use flagos_vendor_kit::stream_work;

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
    /// Bit `n`: access to the memory of device `n` has been arranged, or is impossible.
    pub(super) peers: AtomicU64,
    /// A mask with one bit for each device of the vendor.
    all: u64,
    discarded: Mutex<Vec<Discarded>>,
}

/// A handle or memory to give back to CUDA. Work running on a stream must not call CUDA, so it only queues these.
#[derive(Clone, Copy)]
pub(super) enum Discarded {
    Stream(CUstream),
    Event(CUevent),
    Module(CUmodule),
    Memory(CUdeviceptr),
    Pinned(*mut c_void),
}

// SAFETY: CUDA's handles may be used from every thread; these are used once.
unsafe impl Send for Discarded {}

impl Device {
    /// Describes a device; creates no context.
    pub(super) fn new(api: &'static Api, index: usize, count: usize) -> Result<Self> {
        let mut raw = 0;
        let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: a valid output; CUDA is initialised, as only `initialize` gives out an `Api`.
        unsafe { cuda!(api, cuDeviceGet(&mut raw, ordinal)) }?;
        Ok(Self {
            api,
            index,
            raw,
            properties: describe(api, raw)?,
            context: AtomicPtr::default(),
            retaining: Mutex::new(()),
            peers: AtomicU64::new(1 << (index % 64)),
            all: 1_u64
                .checked_shl(count as u32)
                .map_or(u64::MAX, |bit| bit - 1),
            discarded: Mutex::default(),
        })
    }

    /// Whether access to the memory of some other device has not been arranged yet.
    pub(super) fn has_new_peers(&self) -> bool {
        self.peers.load(Ordering::Relaxed) & self.all != self.all
    }

    /// Whether the context has been created by us.
    pub(super) fn is_used(&self) -> bool {
        !self.context.load(Ordering::Acquire).is_null()
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
            unsafe { cuda!(self.api, cuDevicePrimaryCtxRetain(&mut context, self.raw)) }
                .map_err(|error| self.located(error))?;
            self.context.store(context, Ordering::Release);
        }
        Ok(context)
    }

    /// Makes the context current on this thread. Dropping the guard restores the context that was current
    /// before, from which torch derives its current device. Fails in a forked child, and in work running on a
    /// stream.
    #[inline]
    pub(super) fn enter(&self, operation: &'static str) -> Result<Entered<'_>> {
        if driver::is_forked() {
            return Err(Error::forked(operation));
        }
        stream_work::refuse(operation, "CUDA")?;
        let context = self.context()?;
        let mut before = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { cuda!(self.api, cuCtxGetCurrent(&mut before)) }?;
        if before == context {
            return Ok(Entered::new(self, None));
        }
        // SAFETY: a context that is never given back.
        unsafe { cuda!(self.api, cuCtxSetCurrent(context)) }
            .map_err(|error| self.located(error))?;
        // A thread without a context may keep that of device 0, which the CUDA runtime would choose too.
        let keep = before.is_null() && self.index == 0;
        Ok(Entered::new(self, (!keep).then_some(before)))
    }

    /// Adds the device to an error.
    #[cold]
    pub(super) fn located(&self, error: Error) -> Error {
        error.with_context("device", self.index)
    }

    /// Destroys a handle or frees memory: at once, or later when called in work running on a stream.
    pub(super) fn discard(&self, item: Discarded) {
        // In a forked child the handle is invalid.
        if driver::is_forked() {
            return;
        }
        if stream_work::is_current() {
            self.discarded.lock().push(item);
            return;
        }
        if let Err(error) = self
            .enter("destroy")
            .and_then(|_entered| self.destroy(item))
        {
            tracing::error!(device = self.index, %error, "a CUDA object was not destroyed");
        }
    }

    fn destroy(&self, item: Discarded) -> Result<()> {
        // SAFETY: callers discard only items that they own, and do not use them afterwards. CUDA keeps streams
        // and events until their work has run.
        unsafe {
            match item {
                Discarded::Stream(stream) => cuda!(self.api, cuStreamDestroy_v2(stream)),
                Discarded::Event(event) => cuda!(self.api, cuEventDestroy_v2(event)),
                Discarded::Module(module) => cuda!(self.api, cuModuleUnload(module)),
                Discarded::Memory(address) => cuda!(self.api, cuMemFree_v2(address)),
                Discarded::Pinned(address) => cuda!(self.api, cuMemFreeHost(address)),
            }
        }
    }

    /// Destroys the items that work running on a stream has discarded.
    pub(super) fn bury(&self) {
        let items = std::mem::take(&mut *self.discarded.lock());
        for item in items {
            self.discard(item);
        }
    }
}

/// The guard of [`Device::enter`]: while it lives, the device's context is current on the calling thread.
pub(super) struct Entered<'d> {
    device: &'d Device,
    restore: Option<*mut CUctx_st>,
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

impl<'d> Entered<'d> {
    #[inline]
    fn new(device: &'d Device, restore: Option<*mut CUctx_st>) -> Self {
        Self {
            device,
            restore,
            _thread: PhantomData,
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(context) = self.restore {
            let api = self.device.api;
            // SAFETY: what was current a moment ago on this thread, or null.
            if let Err(error) = unsafe { cuda!(api, cuCtxSetCurrent(context)) } {
                tracing::error!(%error, "the CUDA context of a thread was not restored");
            }
        }
    }
}

fn describe(api: &Api, device: CUdevice) -> Result<DeviceProperties> {
    use CUdevice_attribute as A;
    let mut name = [0; 256];
    let mut total_memory = 0;
    // SAFETY: valid outputs of the sizes given, and a valid device.
    unsafe {
        cuda!(api, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        cuda!(api, cuDeviceTotalMem_v2(&mut total_memory, device))?;
    }
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: a valid output and a valid device.
        unsafe { cuda!(api, cuDeviceGetAttribute(&mut value, attribute, device)) }.map(|()| value)
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
