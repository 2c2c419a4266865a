//! Entries about graphs.

use crate::error::{Error, Result};
use crate::runtime::{CaptureMode, Runtime, StreamGraph, process};

use super::status::{device_index, give, null, quietly, status};
use super::streams::stream_as_it_is as find;
use super::types::{
    FLAGOS_CAPTURE_ACTIVE, FLAGOS_CAPTURE_INVALID, FLAGOS_CAPTURE_NONE, FlagosGraph,
};

/// The graph of a caller, and the runtime.
///
/// # Safety
/// `graph` is NULL or came from [`create`] and is not destroyed during `'a`.
unsafe fn graph<'a>(
    operation: &'static str,
    graph: *const FlagosGraph,
) -> Result<(&'a StreamGraph, &'static Runtime)> {
    let runtime = process::require(operation)?;
    // SAFETY: the caller's promise.
    match unsafe { graph.as_ref() } {
        Some(graph) => Ok((&graph.graph, runtime)),
        None => Err(null("the graph")),
    }
}

/// `FlagosApi::graph_supported`.
pub(super) extern "C" fn supported() -> i32 {
    status(|| process::require("graph_supported")?.vendor().captures())
}

/// `FlagosApi::graph_memory_create`.
///
/// # Safety
/// `memory` is NULL or valid for writing.
pub(super) unsafe extern "C" fn memory_create(memory: *mut u64) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { give(memory, StreamGraph::new_memory()) })
}

/// `FlagosApi::graph_create`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn create(out: *mut *mut FlagosGraph) -> i32 {
    status(|| {
        if out.is_null() {
            return Err(null("an output of graph_create"));
        }
        let graph = FlagosGraph {
            graph: StreamGraph::default(),
        };
        // SAFETY: the caller's promise.
        unsafe { give(out, Box::into_raw(Box::new(graph))) }
    })
}

/// `FlagosApi::graph_capture_begin`.
///
/// # Safety
/// As [`graph`].
pub(super) unsafe extern "C" fn capture_begin(
    handle: *mut FlagosGraph,
    device: i32,
    stream: u64,
    memory: u64,
    mode: i32,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (graph, runtime) = unsafe { graph("capture_begin", handle) }?;
        let mode = CaptureMode::from_number(mode).ok_or_else(|| {
            Error::invalid_argument("capture_begin", format!("there is no mode {mode}"))
                .with_hint("use one of FLAGOS_CAPTURE_*")
        })?;
        let memory = (memory != 0).then_some(memory);
        runtime.vendor().flush()?;
        graph.begin_capture(runtime, (device_index(device)?, stream), memory, mode)
    })
}

/// `FlagosApi::graph_capture_end`.
///
/// # Safety
/// As [`graph`].
pub(super) unsafe extern "C" fn capture_end(handle: *mut FlagosGraph) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (graph, runtime) = unsafe { graph("capture_end", handle) }?;
        graph.end_capture(runtime)
    })
}

/// `FlagosApi::graph_replay`.
///
/// # Safety
/// As [`graph`]; what the graph uses beside its memory is there until it has run.
pub(super) unsafe extern "C" fn replay(handle: *mut FlagosGraph, stream: u64) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (graph, runtime) = unsafe { graph("replay", handle) }?;
        runtime.vendor().flush()?;
        graph.replay(runtime, stream)
    })
}

/// `FlagosApi::graph_reset`.
///
/// # Safety
/// As [`graph`].
pub(super) unsafe extern "C" fn reset(handle: *mut FlagosGraph) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (graph, runtime) = unsafe { graph("reset", handle) }?;
        graph.reset(runtime)
    })
}

/// `FlagosApi::graph_memory`.
///
/// # Safety
/// As [`graph`]; `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn memory(handle: *const FlagosGraph, out: *mut u64) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { give(out, graph("pool", handle)?.0.memory()?) })
}

/// `FlagosApi::graph_device`.
///
/// # Safety
/// As [`memory`].
pub(super) unsafe extern "C" fn device(handle: *const FlagosGraph, out: *mut i32) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (graph, _) = unsafe { graph("graph_device", handle) }?;
        let device = graph.device().and_then(|device| i32::try_from(device).ok());
        // SAFETY: the caller's promise.
        unsafe { give(out, device.unwrap_or(-1)) }
    })
}

/// `FlagosApi::graph_destroy`.
///
/// # Safety
/// `graph` is NULL or came from [`create`] and has not been destroyed.
pub(super) unsafe extern "C" fn destroy(graph: *mut FlagosGraph) {
    // In a forked child the graph is leaked, because its locks may be held for ever.
    if graph.is_null() || process::is_forked() {
        return;
    }
    quietly(|| {
        // SAFETY: the caller's promise.
        let graph = unsafe { Box::from_raw(graph) };
        match process::get() {
            Some(runtime) => graph.graph.reset(runtime),
            None => Ok(()),
        }
    });
}

/// `FlagosApi::stream_capture_status`.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn status_of(device: i32, id: u64, out: *mut i32) -> i32 {
    status(|| {
        let capture = find("stream_capture_status", device, id)?.capture()?;
        let code = match capture {
            None => FLAGOS_CAPTURE_NONE,
            Some(capture) if capture.valid => FLAGOS_CAPTURE_ACTIVE,
            Some(_) => FLAGOS_CAPTURE_INVALID,
        };
        // SAFETY: the caller's promise.
        unsafe { give(out, code) }
    })
}
