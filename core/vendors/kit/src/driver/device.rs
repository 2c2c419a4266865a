//! A device: how it becomes current, and what is given back to its driver.

use std::ffi::c_void;
use std::marker::PhantomData;

use parking_lot::Mutex;

use flagos_core::error::{Error, Result};

use super::Process;
use crate::stream_work;

/// A stream, an event or another object of a driver.
pub type Handle = *mut c_void;

/// A device of a driver. Streams and events keep it alive.
pub trait DriverDevice: Send + Sync + Sized + 'static {
    /// The vendor's devices, as messages call them.
    const FAMILY: &'static str;
    /// The driver's library, as messages call it.
    const LIBRARY: &'static str;
    /// The variable that chooses the devices of a process.
    const VARIABLE: &'static str;

    /// What is current on a thread: a context, or the number of a device.
    type Current: Copy;
    /// A handle or memory to give back to the driver.
    type Discarded: Send;

    /// What this process has done with the driver.
    fn process() -> &'static Process;

    /// The device's number, which is also the driver's.
    fn index(&self) -> usize;

    /// Makes the device current on this thread. Returns what is to be current again afterwards.
    fn switch(&self, operation: &'static str) -> Result<Option<Self::Current>>;

    /// Makes current what was so on this thread before [`DriverDevice::switch`].
    fn switch_back(&self, before: Self::Current) -> Result<()>;

    /// Whether the device was ever current for a call of ours.
    fn is_used(&self) -> bool;

    /// Whether the device takes nothing back any more.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether nothing can be given back for now.
    fn defers(&self) -> bool {
        false
    }

    /// What waits to be given back.
    fn discarded(&self) -> &Mutex<Vec<Self::Discarded>>;

    /// Gives an item back; false when the device still uses it. Nobody else uses it.
    fn destroy(&self, item: &Self::Discarded) -> Result<bool>;

    /// Fails in a forked child, and in work running on a stream, which must not call the driver.
    #[inline]
    fn refuse(operation: &'static str) -> Result<()> {
        if Self::process().is_forked() {
            return Err(Error::forked(operation));
        }
        stream_work::refuse(operation, Self::FAMILY, Self::LIBRARY)
    }

    /// Makes the device current on this thread for as long as the guard lives, as other libraries of the process rely on
    /// what they have made current. Fails as [`DriverDevice::refuse`].
    #[inline]
    fn enter(&self, operation: &'static str) -> Result<Entered<'_, Self>> {
        Self::refuse(operation)?;
        Ok(Entered {
            restore: self.switch(operation)?,
            device: self,
            _thread: PhantomData,
        })
    }

    /// Adds the device to an error.
    #[cold]
    fn located(&self, error: Error) -> Error {
        error.with_context("device", self.index())
    }

    /// Destroys a handle or frees memory: at once, or later when called in work running on a stream, or when the device
    /// still uses it.
    fn discard(&self, item: Self::Discarded) {
        // In a forked child the handle is invalid.
        if Self::process().is_forked() || self.is_lost() {
            return;
        }
        if stream_work::is_current() || self.defers() {
            self.discarded().lock().push(item);
            return;
        }
        match self.destroy(&item) {
            Ok(true) => {}
            Ok(false) => self.discarded().lock().push(item),
            Err(error) => {
                tracing::error!(device = self.index(), %error, "an object of the device was not destroyed");
            }
        }
    }

    /// Destroys what was discarded and is no longer used.
    fn bury(&self) {
        if self.defers() {
            return;
        }
        let items = std::mem::take(&mut *self.discarded().lock());
        for item in items {
            self.discard(item);
        }
    }
}

/// The guard of [`DriverDevice::enter`]: while it lives, the device is current on the calling thread.
pub struct Entered<'d, D: DriverDevice> {
    device: &'d D,
    restore: Option<D::Current>,
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

impl<D: DriverDevice> Drop for Entered<'_, D> {
    #[inline]
    fn drop(&mut self) {
        let restored = self.restore.map(|before| self.device.switch_back(before));
        if let Some(Err(error)) = restored {
            tracing::error!(%error, "the current device of a thread was not restored");
        }
    }
}

/// What a driver takes back that keeps streams and events until their work has run.
#[derive(Clone, Copy)]
pub enum Discarded {
    /// A stream.
    Stream(Handle),
    /// An event.
    Event(Handle),
    /// A module.
    Module(Handle),
    /// Memory of the device.
    Memory(*mut c_void),
    /// Page-locked memory.
    Pinned(*mut c_void),
}

// SAFETY: drivers' handles may be used from every thread; these are used once.
unsafe impl Send for Discarded {}
