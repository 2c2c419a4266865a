//! The functions of the table for events.

use super::handle::{EventHandle, Instance, StreamHandle, device};
use super::outcome::{give, status};
use flagos_core::vendors::library::*;

// The functions below get live instances, streams and events, and valid outputs.

/// `FlagosVendor::event_create`.
pub(super) unsafe extern "C" fn event_create(
    instance: *mut FlagosVendorInstance,
    index: i32,
    flags: u32,
    out: *mut *mut FlagosVendorEvent,
) -> i32 {
    let timing = flags & FLAGOS_VENDOR_EVENT_TIMING != 0;
    // SAFETY: a live instance and a valid output.
    unsafe {
        let instance = Instance::of(instance);
        give(instance.description, out, || {
            let handle = EventHandle {
                event: instance.vendor.event(device(index), timing)?,
                description: instance.description,
            };
            Ok(Box::into_raw(Box::new(handle)).cast())
        })
    }
}

/// `FlagosVendor::event_destroy`.
pub(super) unsafe extern "C" fn event_destroy(handle: *mut FlagosVendorEvent) -> i32 {
    // SAFETY: made by `event_create`, and not used any more.
    let handle = unsafe { Box::from_raw(handle.cast::<EventHandle>()) };
    let description = handle.description;
    status(description, || {
        drop(handle);
        Ok(())
    })
}

/// `FlagosVendor::event_record`.
pub(super) unsafe extern "C" fn event_record(
    handle: *mut FlagosVendorEvent,
    stream: *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live event and a live stream.
    let (handle, stream) = unsafe { (EventHandle::of(handle), StreamHandle::of(stream)) };
    status(handle.description, || stream.stream.record(&*handle.event))
}

/// `FlagosVendor::event_wait`.
pub(super) unsafe extern "C" fn event_wait(
    handle: *mut FlagosVendorEvent,
    stream: *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live event and a live stream.
    let (handle, stream) = unsafe { (EventHandle::of(handle), StreamHandle::of(stream)) };
    status(handle.description, || stream.stream.wait(&*handle.event))
}

/// `FlagosVendor::event_query`.
pub(super) unsafe extern "C" fn event_query(handle: *mut FlagosVendorEvent, out: *mut i32) -> i32 {
    // SAFETY: a live event and a valid output.
    unsafe {
        let handle = EventHandle::of(handle);
        give(handle.description, out, || {
            handle.event.query().map(i32::from)
        })
    }
}

/// `FlagosVendor::event_sync`.
pub(super) unsafe extern "C" fn event_sync(handle: *mut FlagosVendorEvent) -> i32 {
    // SAFETY: a live event.
    let handle = unsafe { EventHandle::of(handle) };
    status(handle.description, || handle.event.sync())
}

/// `FlagosVendor::event_elapsed`.
pub(super) unsafe extern "C" fn event_elapsed(
    start: *mut FlagosVendorEvent,
    end: *mut FlagosVendorEvent,
    out: *mut f64,
) -> i32 {
    // SAFETY: live events and a valid output.
    unsafe {
        let (start, end) = (EventHandle::of(start), EventHandle::of(end));
        give(start.description, out, || {
            start.event.elapsed_ms(&*end.event)
        })
    }
}
