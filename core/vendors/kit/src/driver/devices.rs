//! The devices of a vendor, and what a program asks of one by its number.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use flagos_core::error::{Error, Result};
use flagos_core::runtime::{DeviceProperties, Event, MemoryInfo, Stream};

use super::{DriverDevice, DriverEvent, DriverStream, DriverStreams, Handle};

/// A driver's functions of memory.
pub trait DriverMemory: DriverDevice {
    /// The description, which is made once.
    fn properties(&self) -> Result<&DeviceProperties>;

    /// The bytes that nobody uses. The device is current.
    fn free_memory(&self) -> Result<usize>;

    /// Memory of the device at a multiple of [`flagos_core::runtime::ALIGNMENT`]. The device is current.
    fn alloc(&self, nbytes: usize) -> Result<NonNull<u8>>;

    /// Page-locked memory. The device is current.
    fn alloc_pinned(&self, nbytes: usize) -> Result<NonNull<u8>>;

    /// Gives back memory of the device.
    fn free(&self, address: NonNull<u8>);

    /// Gives back page-locked memory.
    fn free_pinned(&self, address: NonNull<u8>);
}

/// The devices of a vendor, by their numbers.
pub struct Devices<D>(Box<[Arc<D>]>);

impl<D> Clone for Devices<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D> Deref for Devices<D> {
    type Target = [Arc<D>];

    fn deref(&self) -> &[Arc<D>] {
        &self.0
    }
}

impl<D> FromIterator<D> for Devices<D> {
    fn from_iter<I: IntoIterator<Item = D>>(devices: I) -> Self {
        Self(devices.into_iter().map(Arc::new).collect())
    }
}

impl<D: DriverDevice> Devices<D> {
    /// The device of this number.
    pub fn device(&self, device: usize) -> Result<&Arc<D>> {
        self.get(device).ok_or_else(|| {
            let (family, count, variable) = (D::FAMILY, self.len(), D::VARIABLE);
            Error::invalid_argument("device", format!("there is no {family} device {device}"))
                .with_hint(format!(
                    "there are {count}, numbered from 0; {variable} chooses them"
                ))
        })
    }

    /// The device that is current while pinned memory is allocated: one that is in use already, else the first.
    fn any(&self) -> Result<&Arc<D>> {
        let used = self.iter().find(|device| device.is_used());
        used.map_or_else(|| self.device(0), Ok)
    }
}

/// Functions of [`flagos_core::runtime::Vendor`], by their names there.
impl<D: DriverMemory> Devices<D> {
    /// The description of a device.
    pub fn properties(&self, device: usize) -> Result<DeviceProperties> {
        self.device(device)?.properties().cloned()
    }

    /// The memory of a device.
    pub fn memory(&self, device: usize) -> Result<MemoryInfo> {
        let device = self.device(device)?;
        // The total is that of the properties, so that both calls tell the same number.
        let total = device.properties()?.total_memory;
        let _entered = device.enter("memory")?;
        let free = device
            .free_memory()
            .map_err(|error| device.located(error))?;
        Ok(MemoryInfo {
            free: (free as u64).min(total),
            total,
        })
    }

    /// Allocates on a device.
    pub fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.device(device)?;
        D::refuse("alloc")?;
        let total = device.properties()?.total_memory;
        if nbytes as u64 > total {
            let message = format!("{nbytes} bytes on a device of {total}");
            return Err(device
                .located(Error::out_of_memory("alloc", message))
                .with_hint("check the shape"));
        }
        device.bury();
        let _entered = device.enter("alloc")?;
        device
            .alloc(nbytes)
            .map_err(|error| device.located(error).with_context("bytes", nbytes))
    }

    /// Frees memory of a device.
    pub fn free(&self, device: usize, address: NonNull<u8>) {
        if let Some(device) = self.get(device) {
            device.free(address);
        }
    }

    /// Allocates page-locked memory.
    pub fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let device = self.any()?;
        let _entered = device.enter("pinned_alloc")?;
        device
            .alloc_pinned(nbytes)
            .map_err(|error| error.with_context("bytes", nbytes))
    }

    /// Frees page-locked memory.
    pub fn pinned_free(&self, address: NonNull<u8>) {
        if let Ok(device) = self.any() {
            device.free_pinned(address);
        }
    }
}

/// Functions of [`flagos_core::runtime::Vendor`], by their names there.
impl<D: DriverStreams> Devices<D> {
    /// Makes a stream.
    pub fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        let device = self.device(device)?;
        device.bury();
        Ok(Arc::new(DriverStream::new(device, priority)?))
    }

    /// A stream around a handle of another library.
    ///
    /// # Safety
    /// As [`DriverStream::external`].
    pub unsafe fn external_stream(&self, device: usize, handle: Handle) -> Result<Arc<dyn Stream>> {
        let device = self.device(device)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { DriverStream::external(device, handle) }?;
        Ok(Arc::new(stream))
    }

    /// Makes an event.
    pub fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        let device = self.device(device)?;
        device.bury();
        Ok(Arc::new(DriverEvent::new(device, timing)?))
    }

    /// Waits for all work of a device.
    pub fn wait(&self, device: usize, operation: &'static str) -> Result<()> {
        let device = self.device(device)?;
        if !device.is_used() {
            // Nothing was ever queued, and a call would begin to use the device.
            return Ok(());
        }
        {
            let _entered = device.enter(operation)?;
            device
                .wait_for_all()
                .map_err(|error| device.located(error))?;
        }
        device.bury();
        Ok(())
    }
}

/// The functions of [`flagos_core::runtime::Vendor`] that are the same in every vendor with the fields `devices`, which are
/// [`Devices`], and `pending`. It stands in an `impl` of that trait.
#[macro_export]
macro_rules! devices_answer {
    () => {
        fn device_count(&self) -> usize {
            self.devices.len()
        }

        fn properties(
            &self,
            device: usize,
        ) -> ::flagos_core::error::Result<::flagos_core::runtime::DeviceProperties> {
            self.devices.properties(device)
        }

        fn memory(
            &self,
            device: usize,
        ) -> ::flagos_core::error::Result<::flagos_core::runtime::MemoryInfo> {
            self.devices.memory(device)
        }

        fn alloc(
            &self,
            device: usize,
            nbytes: usize,
        ) -> ::flagos_core::error::Result<::std::ptr::NonNull<u8>> {
            self.devices.alloc(device, nbytes)
        }

        unsafe fn free(&self, device: usize, address: ::std::ptr::NonNull<u8>, _nbytes: usize) {
            self.devices.free(device, address);
        }

        fn pinned_alloc(
            &self,
            nbytes: usize,
        ) -> ::flagos_core::error::Result<::std::ptr::NonNull<u8>> {
            self.devices.pinned_alloc(nbytes)
        }

        unsafe fn pinned_free(&self, address: ::std::ptr::NonNull<u8>, _nbytes: usize) {
            self.devices.pinned_free(address);
        }

        fn in_stream_work(&self) -> bool {
            $crate::stream_work::is_current()
        }

        /// False: the host does not compute on device memory, it copies and waits for the copy.
        fn host_computes(&self) -> bool {
            false
        }

        /// Always 0. The count tells host code when it may touch device memory, which no host code can touch here,
        /// and keeping it would cost a call on the host for every item queued.
        fn pending(&self) -> &::flagos_core::runtime::sync::AtomicU64 {
            self.pending
        }
    };
}
