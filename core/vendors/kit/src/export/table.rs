//! The table of an exported vendor.

use std::ffi::NulError;
use std::mem::size_of;
use std::ptr::null;

use super::declaration::Declared;
use super::description::Described;
use super::exported::Export;
use super::{declaration, event, graph, instance, launch, outcome, sharing, stream};
use flagos_core::vendors::library::*;

/// The table of an exported vendor, with all that it points at.
pub struct Table {
    raw: FlagosVendor,
    _description: Described,
    _declared: Declared,
}

// SAFETY: nobody writes it.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// The table of a vendor.
    ///
    /// # Errors
    /// When a text of the description has a NUL inside.
    pub fn new<E: Export>() -> Result<Self, NulError> {
        let description = Described::new(E::description())?;
        let declared = Declared::new(E::declarations())?;
        let (declarations, num_declarations) = declared.array();
        let capabilities = E::capabilities() | FLAGOS_VENDOR_TELLS_MEMORY;
        let can = |bit| capabilities & bit != 0;
        let launches = can(FLAGOS_VENDOR_LAUNCHES);
        let captures = can(FLAGOS_VENDOR_CAPTURES);
        let shares = can(FLAGOS_VENDOR_SHARES);
        let raw = FlagosVendor {
            struct_size: size_of::<FlagosVendor>(),
            major: FLAGOS_VENDOR_MAJOR,
            minor: FLAGOS_VENDOR_MINOR,
            capabilities,
            description: description.address(),
            last_error: Some(outcome::last_error),
            probe: Some(instance::probe::<E>),
            open: Some(instance::open::<E>),
            close: Some(instance::close),
            after_fork_in_child: Some(instance::after_fork_in_child),
            in_stream_work: Some(instance::in_stream_work),
            device_count: Some(instance::device_count),
            device_properties: Some(instance::device_properties),
            device_memory: Some(instance::device_memory),
            device_sync: Some(instance::device_sync),
            device_quiesce: Some(instance::device_quiesce),
            memory_alloc: Some(instance::memory_alloc),
            memory_free: Some(instance::memory_free),
            pinned_alloc: Some(instance::pinned_alloc),
            pinned_free: Some(instance::pinned_free),
            stream_default: Some(stream::stream_default),
            stream_create: Some(stream::stream_create),
            stream_destroy: Some(stream::stream_destroy),
            stream_query: Some(stream::stream_query),
            stream_is_idle: Some(stream::stream_is_idle),
            stream_sync: Some(stream::stream_sync),
            stream_copy: Some(stream::stream_copy),
            stream_host_function: Some(stream::stream_host_function),
            event_create: Some(event::event_create),
            event_destroy: Some(event::event_destroy),
            event_record: Some(event::event_record),
            event_wait: Some(event::event_wait),
            event_query: Some(event::event_query),
            event_sync: Some(event::event_sync),
            event_elapsed: Some(event::event_elapsed),
            stream_native_handle: can(FLAGOS_VENDOR_NATIVE_HANDLES)
                .then_some(stream::stream_native_handle as _),
            stream_external: can(FLAGOS_VENDOR_EXTERNAL_STREAMS)
                .then_some(stream::stream_external as _),
            module_load: launches.then_some(launch::module_load as _),
            module_unload: launches.then_some(launch::module_unload as _),
            kernel_create: launches.then_some(launch::kernel_create as _),
            kernel_external: launches.then_some(launch::kernel_external as _),
            kernel_destroy: launches.then_some(launch::kernel_destroy as _),
            kernel_launch: launches.then_some(launch::kernel_launch as _),
            memory_device_address: launches.then_some(launch::memory_device_address as _),
            capture_begin: captures.then_some(graph::capture_begin as _),
            capture_status: (captures || can(FLAGOS_VENDOR_SEES_CAPTURES))
                .then_some(graph::capture_status as _),
            capture_end: captures.then_some(graph::capture_end as _),
            graph_launch: captures.then_some(graph::graph_launch as _),
            graph_destroy: captures.then_some(graph::graph_destroy as _),
            device_reaches: can(FLAGOS_VENDOR_REACHES_PEERS)
                .then_some(instance::device_reaches as _),
            memory_export: shares.then_some(sharing::memory_export as _),
            memory_import: shares.then_some(sharing::memory_import as _),
            memory_close: shares.then_some(sharing::memory_close as _),
            memory_close_all: shares.then_some(sharing::memory_close_all as _),
            memory_padding: Some(instance::memory_padding),
            capability_check: Some(instance::capability_check),
            declarations,
            num_declarations,
            declaration_try: (num_declarations > 0)
                .then_some(declaration::declaration_try::<E> as _),
            reserved: [null(); 17],
        };
        Ok(Self {
            raw,
            _description: description,
            _declared: declared,
        })
    }

    /// The table, for the host. It is valid as long as this lives, and stays where this is.
    pub fn raw(&self) -> &FlagosVendor {
        &self.raw
    }
}
