//! The functions of the table that capture work.

use flagos_core::error::Error;
use flagos_core::runtime::CaptureMode;

use super::handle::{GraphHandle, StreamHandle};
use super::outcome::{give, status};
use flagos_core::vendors::library::*;

// The functions below get live streams and graphs, and valid outputs.

/// `FlagosVendor::capture_begin`.
pub(super) unsafe extern "C" fn capture_begin(stream: *mut FlagosVendorStream, mode: i32) -> i32 {
    // SAFETY: a live stream.
    let stream = unsafe { StreamHandle::of(stream) };
    status(stream.description, || {
        let mode = CaptureMode::from_number(mode).ok_or_else(|| {
            Error::invalid_argument("capture_begin", format!("there is no mode {mode}"))
        })?;
        stream.stream.begin_capture(mode)
    })
}

/// `FlagosVendor::capture_status`.
pub(super) unsafe extern "C" fn capture_status(
    stream: *mut FlagosVendorStream,
    capture: *mut u64,
    valid: *mut i32,
) -> i32 {
    // SAFETY: a live stream and valid outputs.
    unsafe {
        let stream = StreamHandle::of(stream);
        status(stream.description, || {
            let found = stream.stream.capture()?;
            capture.write(found.map_or(0, |found| found.id));
            valid.write(found.map_or(0, |found| found.valid.into()));
            Ok(())
        })
    }
}

/// `FlagosVendor::capture_end`.
pub(super) unsafe extern "C" fn capture_end(
    stream: *mut FlagosVendorStream,
    out: *mut *mut FlagosVendorGraph,
) -> i32 {
    // SAFETY: a live stream and a valid output.
    unsafe {
        let stream = StreamHandle::of(stream);
        give(stream.description, out, || {
            let handle = GraphHandle {
                graph: stream.stream.end_capture()?,
                description: stream.description,
            };
            Ok(Box::into_raw(Box::new(handle)).cast())
        })
    }
}

/// `FlagosVendor::graph_launch`.
pub(super) unsafe extern "C" fn graph_launch(
    handle: *mut FlagosVendorGraph,
    stream: *mut FlagosVendorStream,
) -> i32 {
    // SAFETY: a live graph and a live stream. The host keeps the memory of the graph.
    unsafe {
        let (handle, stream) = (GraphHandle::of(handle), StreamHandle::of(stream));
        status(handle.description, || stream.stream.replay(&*handle.graph))
    }
}

/// `FlagosVendor::graph_destroy`.
pub(super) unsafe extern "C" fn graph_destroy(handle: *mut FlagosVendorGraph) -> i32 {
    // SAFETY: made by `capture_end`, and not used any more.
    let handle = unsafe { Box::from_raw(handle.cast::<GraphHandle>()) };
    let description = handle.description;
    status(description, || {
        drop(handle);
        Ok(())
    })
}
