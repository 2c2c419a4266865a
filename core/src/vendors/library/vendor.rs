//! The trait [`Vendor`] over a library's table.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Result;
use crate::runtime::launch::{Kernel, Launcher, Module, ParameterType, Shape};
use crate::runtime::sync::AtomicU64;
use crate::runtime::{
    ALIGNMENT, DeviceProperties, Event, MemoryInfo, Place, Sharing, Stream, Vendor,
};

use super::call::{call, give_back};
use super::event::LibraryEvent;
use super::instance::Instance;
use super::launch::{self, LibraryModule};
use super::loaded::Library;
use super::queue::Cut;
use super::stream::LibraryStream;
use super::text;
use super::types::*;

/// Opens the vendor of a library. Where the host computes on device memory, unfinished work is counted in `pending`.
pub fn open(library: &'static Library, pending: &'static AtomicU64) -> Result<Arc<dyn Vendor>> {
    let instance = Arc::new(Instance::open(library, pending)?);
    Ok(Arc::new(LibraryVendor(instance)))
}

/// The vendor of a library.
struct LibraryVendor(Arc<Instance>);

impl LibraryVendor {
    /// Fails unless a capability can be used here, of which this is a function.
    fn check(&self, bit: u64, function: &'static str) -> Result<()> {
        if !self.0.library.can(bit) {
            return Err(self.0.library.lacks(function));
        }
        if self.0.library.table().capability_check.is_none() {
            return Ok(());
        }
        // SAFETY: a live instance.
        unsafe {
            self.0.call(function, |table| {
                let check = table.capability_check?;
                Some(check(self.0.context, bit))
            })
        }
    }

    /// The address that a function wrote, noted. An address that is not `ALIGNMENT`-aligned is freed by `free` and an
    /// error; one of memory that is allocated is an error.
    fn address(
        &self,
        function: &'static str,
        place: Place,
        address: *mut c_void,
        nbytes: usize,
        free: impl FnOnce(NonNull<u8>),
    ) -> Result<NonNull<u8>> {
        let library = self.0.library;
        let broken = |found: &str| library.broken(function, found);
        let found = NonNull::new(address.cast::<u8>()).ok_or_else(|| broken("the address NULL"))?;
        let start = found.as_ptr() as usize;
        if start % ALIGNMENT == 0 {
            let memory = &self.0.memory;
            memory.note(library, function, place, start, nbytes)?;
            return Ok(found);
        }
        free(found);
        Err(broken(&format!(
            "the address {found:p}, no multiple of {ALIGNMENT}"
        )))
    }
}

impl Vendor for LibraryVendor {
    fn name(&self) -> &'static str {
        &self.0.library.description().name
    }

    fn device_count(&self) -> usize {
        self.0.devices
    }

    fn properties(&self, device: usize) -> Result<DeviceProperties> {
        let index = self.0.device(device)?;
        let mut answer = FlagosVendorProperties {
            struct_size: std::mem::size_of::<FlagosVendorProperties>(),
            name: [0; 256],
            total_memory: 0,
            multi_processor_count: 0,
            major: 0,
            minor: 0,
            reserved_word: 0,
        };
        // SAFETY: a device of the instance and a valid output.
        unsafe {
            call!(
                self.0,
                device_properties(self.0.context, index, &mut answer)
            )
        }?;
        // The library may have filled the whole array.
        answer.name[255] = 0;
        // SAFETY: the array ends with a NUL.
        let name = unsafe { text::read_lossy(answer.name.as_ptr()) };
        Ok(DeviceProperties {
            name: name.unwrap_or_default(),
            total_memory: answer.total_memory,
            multi_processor_count: answer.multi_processor_count,
            major: answer.major,
            minor: answer.minor,
        })
    }

    fn memory(&self, device: usize) -> Result<MemoryInfo> {
        let index = self.0.device(device)?;
        let mut answer = FlagosVendorMemory {
            struct_size: std::mem::size_of::<FlagosVendorMemory>(),
            free: 0,
            total: 0,
        };
        // SAFETY: a device of the instance and a valid output.
        unsafe { call!(self.0, device_memory(self.0.context, index, &mut answer)) }?;
        Ok(MemoryInfo {
            free: answer.free,
            total: answer.total,
        })
    }

    fn reaches(&self, device: usize, peer: usize) -> Result<bool> {
        if !self.0.library.can(FLAGOS_VENDOR_REACHES_PEERS) {
            return Ok(false);
        }
        let (device, peer) = (self.0.device(device)?, self.0.device(peer)?);
        let mut reaches = 0;
        // SAFETY: devices of the instance and a valid output.
        unsafe {
            call!(
                self.0,
                device_reaches(self.0.context, device, peer, &mut reaches)
            )
        }?;
        Ok(reaches != 0)
    }

    fn padding(&self) -> usize {
        match self.0.library.table().memory_padding {
            // SAFETY: a live instance.
            Some(padding) if !self.0.is_forked() => unsafe { padding(self.0.context) },
            _ => 0,
        }
    }

    fn alloc(&self, device: usize, nbytes: usize) -> Result<NonNull<u8>> {
        let index = self.0.device(device)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: a device of the instance and a valid output.
        unsafe {
            call!(
                self.0,
                memory_alloc(self.0.context, index, nbytes, &mut address)
            )
        }
        .map_err(|error| {
            error
                .with_context("device", device)
                .with_context("bytes", nbytes)
        })?;
        // SAFETY: just allocated, unused.
        let free = |address| unsafe { self.free(device, address, nbytes) };
        let place = Place::Device(device);
        self.address("memory_alloc", place, address, nbytes, free)
    }

    unsafe fn free(&self, device: usize, address: NonNull<u8>, nbytes: usize) {
        let Ok(index) = self.0.device(device) else {
            return;
        };
        // The library does not know of parts that were not handed to it.
        self.0.drain(Cut::Free);
        self.0.memory.forget(address.as_ptr() as usize);
        // SAFETY: the caller's promise.
        unsafe {
            give_back!(
                self.0,
                memory_free(self.0.context, index, address.as_ptr().cast(), nbytes)
            );
        }
    }

    fn pinned_alloc(&self, nbytes: usize) -> Result<NonNull<u8>> {
        let mut address = std::ptr::null_mut();
        // SAFETY: a valid output.
        unsafe { call!(self.0, pinned_alloc(self.0.context, nbytes, &mut address)) }
            .map_err(|error| error.with_context("bytes", nbytes))?;
        // SAFETY: just allocated, unused.
        let free = |address| unsafe { self.pinned_free(address, nbytes) };
        self.address("pinned_alloc", Place::Pinned, address, nbytes, free)
    }

    unsafe fn pinned_free(&self, address: NonNull<u8>, nbytes: usize) {
        self.0.memory.forget(address.as_ptr() as usize);
        // SAFETY: the caller's promise.
        unsafe {
            give_back!(
                self.0,
                pinned_free(self.0.context, address.as_ptr().cast(), nbytes)
            );
        }
    }

    fn default_stream(&self, device: usize) -> Result<Arc<dyn Stream>> {
        Ok(Arc::new(LibraryStream::default(&self.0, device)?))
    }

    fn stream(&self, device: usize, priority: i32) -> Result<Arc<dyn Stream>> {
        Ok(Arc::new(LibraryStream::new(&self.0, device, priority)?))
    }

    unsafe fn external_stream(
        &self,
        device: usize,
        handle: *mut c_void,
    ) -> Result<Arc<dyn Stream>> {
        // SAFETY: the caller's promise.
        let stream = unsafe { LibraryStream::external(&self.0, device, handle) }?;
        Ok(Arc::new(stream))
    }

    fn event(&self, device: usize, timing: bool) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(LibraryEvent::new(&self.0, device, timing)?))
    }

    fn device_sync(&self, device: usize) -> Result<()> {
        let index = self.0.device(device)?;
        self.0.drain(Cut::Other);
        // SAFETY: a device of the instance.
        unsafe { call!(self.0, device_sync(self.0.context, index)) }
    }

    fn quiesce(&self, device: usize) -> Result<()> {
        let index = self.0.device(device)?;
        self.0.drain(Cut::Other);
        // SAFETY: a device of the instance.
        unsafe { call!(self.0, device_quiesce(self.0.context, index)) }
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn in_stream_work(&self) -> bool {
        let in_stream_work = self.0.library.table().in_stream_work;
        // SAFETY: a live instance.
        !self.0.is_forked()
            && in_stream_work
                .is_some_and(|in_stream_work| unsafe { in_stream_work(self.0.context) } != 0)
    }

    fn host_computes(&self) -> bool {
        self.0.library.can(FLAGOS_VENDOR_HOST_COMPUTES)
    }

    fn pending(&self) -> &AtomicU64 {
        self.0.pending
    }

    fn launcher(&self) -> Result<&dyn Launcher> {
        self.check(FLAGOS_VENDOR_LAUNCHES, "kernel_launch")?;
        Ok(self)
    }

    fn load_module(&self, device: usize, image: &[u8]) -> Result<Box<dyn Module>> {
        Ok(Box::new(LibraryModule::load(&self.0, device, image)?))
    }

    fn sharing(&self) -> Result<&dyn Sharing> {
        self.check(FLAGOS_VENDOR_SHARES, "memory_export")?;
        Ok(&*self.0)
    }

    fn captures(&self) -> Result<()> {
        self.check(FLAGOS_VENDOR_CAPTURES, "capture_begin")
    }

    fn after_fork_in_child(&self) {
        self.0.after_fork_in_child();
    }
}

impl Launcher for LibraryVendor {
    unsafe fn kernel(
        &self,
        function: u64,
        shape: &Shape,
        parameters: &[ParameterType],
    ) -> Result<Box<dyn Kernel>> {
        // SAFETY: the caller's promise.
        unsafe { launch::external(&self.0, function, shape, parameters) }
    }

    fn device_address(&self, address: u64) -> Result<Option<u64>> {
        let mut found = std::ptr::null_mut();
        let address = address as usize as *mut c_void;
        // SAFETY: a live instance and a valid output; any address may be asked about.
        unsafe {
            call!(
                self.0,
                memory_device_address(self.0.context, address, &mut found)
            )
        }?;
        Ok((!found.is_null()).then_some(found as u64))
    }
}
