//! What the host keeps: instances, streams, events, graphs, modules and kernels.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use flagos_core::descriptions::Description;
use flagos_core::runtime::launch::{Kernel, Module};
use flagos_core::runtime::{Event, Graph, Stream, Vendor};

use flagos_core::vendors::library::*;

/// What the host keeps as a `FlagosVendorInstance`.
pub(super) struct Instance {
    pub(super) vendor: Arc<dyn Vendor>,
    pub(super) description: &'static Description,
    /// The default streams that the host has asked for. They stay as long as the instance.
    pub(super) defaults: Mutex<HashMap<usize, Box<StreamHandle>>>,
}

impl Instance {
    /// The instance that the host gave.
    ///
    /// # Safety
    /// `instance` was written by `open`, and has not been closed.
    pub(super) unsafe fn of<'a>(instance: *mut FlagosVendorInstance) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*instance.cast() }
    }
}

/// What the host keeps as a `FlagosVendorStream`.
pub(super) struct StreamHandle {
    pub(super) stream: Arc<dyn Stream>,
    pub(super) description: &'static Description,
}

impl StreamHandle {
    /// The stream that the host gave.
    ///
    /// # Safety
    /// `handle` was written by a function of `stream`, and has not been destroyed.
    pub(super) unsafe fn of<'a>(handle: *mut FlagosVendorStream) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*handle.cast() }
    }

    /// A handle that owns the stream.
    pub(super) fn owned(instance: &Instance, stream: Arc<dyn Stream>) -> Box<Self> {
        Box::new(Self {
            stream,
            description: instance.description,
        })
    }
}

/// What the host keeps as a `FlagosVendorEvent`.
pub(super) struct EventHandle {
    pub(super) event: Arc<dyn Event>,
    pub(super) description: &'static Description,
}

impl EventHandle {
    /// The event that the host gave.
    ///
    /// # Safety
    /// `handle` was written by `event_create`, and has not been destroyed.
    pub(super) unsafe fn of<'a>(handle: *mut FlagosVendorEvent) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*handle.cast() }
    }
}

/// What the host keeps as a `FlagosVendorGraph`.
pub(super) struct GraphHandle {
    pub(super) graph: Arc<dyn Graph>,
    pub(super) description: &'static Description,
}

impl GraphHandle {
    /// The graph that the host gave.
    ///
    /// # Safety
    /// `handle` was written by `capture_end`, and has not been destroyed.
    pub(super) unsafe fn of<'a>(handle: *mut FlagosVendorGraph) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*handle.cast() }
    }
}

/// What the host keeps as a `FlagosVendorModule`.
pub(super) struct ModuleHandle {
    pub(super) module: Box<dyn Module>,
    pub(super) description: &'static Description,
}

impl ModuleHandle {
    /// The module that the host gave.
    ///
    /// # Safety
    /// `handle` was written by `module_load`, and has not been unloaded.
    pub(super) unsafe fn of<'a>(handle: *mut FlagosVendorModule) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*handle.cast() }
    }
}

/// What the host keeps as a `FlagosVendorKernel`.
pub(super) struct KernelHandle {
    pub(super) kernel: Box<dyn Kernel>,
    /// The number of words of a launch.
    pub(super) parameters: usize,
    pub(super) description: &'static Description,
}

impl KernelHandle {
    /// A handle for the host.
    pub(super) fn give(
        kernel: Box<dyn Kernel>,
        parameters: usize,
        description: &'static Description,
    ) -> *mut FlagosVendorKernel {
        let handle = Self {
            kernel,
            parameters,
            description,
        };
        Box::into_raw(Box::new(handle)).cast()
    }

    /// The kernel that the host gave.
    ///
    /// # Safety
    /// `handle` was written by `kernel_create` or `kernel_external`, and has not been destroyed.
    pub(super) unsafe fn of<'a>(handle: *mut FlagosVendorKernel) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*handle.cast() }
    }
}

/// The vendor that a host has opened.
///
/// # Safety
/// `instance` was written by `open` of an exported vendor, and has not been closed.
pub unsafe fn vendor_of<'a>(instance: *mut FlagosVendorInstance) -> &'a dyn Vendor {
    // SAFETY: the caller's promise.
    &*unsafe { Instance::of(instance) }.vendor
}

/// The stream that a host has made.
///
/// # Safety
/// `stream` was written by a function of an exported vendor, and has not been destroyed.
pub unsafe fn stream_of<'a>(stream: *mut FlagosVendorStream) -> &'a dyn Stream {
    // SAFETY: the caller's promise.
    &*unsafe { StreamHandle::of(stream) }.stream
}

/// The device that the host gave, as vendors number them. A number below 0 is that of no device.
pub(super) fn device(index: i32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
