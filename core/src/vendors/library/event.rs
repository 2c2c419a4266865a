//! Events of a library.

use std::any::Any;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::Event;

use super::call::{call, give_back};
use super::instance::Instance;
use super::types::*;

/// An event of a library.
pub(super) struct LibraryEvent {
    instance: Arc<Instance>,
    pub(super) handle: *mut FlagosVendorEvent,
    pub(super) device: usize,
}

// SAFETY: the library's handles may be used from every thread.
unsafe impl Send for LibraryEvent {}
// SAFETY: as above.
unsafe impl Sync for LibraryEvent {}

impl LibraryEvent {
    pub(super) fn new(instance: &Arc<Instance>, device: usize, timing: bool) -> Result<Self> {
        let index = instance.device(device)?;
        let flags = if timing {
            FLAGOS_VENDOR_EVENT_TIMING
        } else {
            0
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a device of the instance and a valid output.
        unsafe {
            call!(
                instance,
                event_create(instance.context, index, flags, &mut handle)
            )
        }?;
        let library = instance.library;
        (instance.events).note(library, "event_create", "event", handle)?;
        let instance = Arc::clone(instance);
        Ok(Self {
            instance,
            handle,
            device,
        })
    }

    /// The event as one of `instance`.
    pub(super) fn of<'e>(event: &'e dyn Event, instance: &Arc<Instance>) -> Result<&'e Self> {
        let ours = event.as_any().downcast_ref::<Self>();
        ours.filter(|event| Arc::ptr_eq(&event.instance, instance))
            .ok_or_else(|| {
                Error::invalid_argument("event", "the event belongs to another vendor")
                    .with_hint("make events and streams with the same vendor")
            })
    }
}

impl Event for LibraryEvent {
    fn query(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: a live event and a valid output.
        unsafe { call!(self.instance, event_query(self.handle, &mut done)) }?;
        Ok(done != 0)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: a live event.
        unsafe { call!(self.instance, event_sync(self.handle)) }
    }

    fn elapsed_ms(&self, end: &dyn Event) -> Result<f64> {
        let end = Self::of(end, &self.instance)?;
        let mut milliseconds = 0.0;
        // SAFETY: live events of one instance, and a valid output.
        unsafe {
            call!(
                self.instance,
                event_elapsed(self.handle, end.handle, &mut milliseconds)
            )
        }?;
        Ok(milliseconds)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for LibraryEvent {
    fn drop(&mut self) {
        self.instance.events.forget(self.handle);
        // SAFETY: a live event, which has no other user.
        unsafe {
            give_back!(self.instance, event_destroy(self.handle));
        }
    }
}
