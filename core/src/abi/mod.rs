//! The C table, by which separately compiled adapters use the core.
//!
//! One extension module of the process contains the core. Any other extension module is compiled against
//! the header `include/flagos.h`, and gets the address of [`API`]. Each entry checks its pointers, catches
//! panics and turns the outcome into a status; the message waits in a thread-local for `last_error`.

mod events;
mod graphs;
mod init;
mod kernels;
mod launches;
mod memory;
mod operators;
mod pinned;
mod recordings;
mod sharing;
mod status;
mod streams;
mod types;
mod vendor;

pub use init::{
    built_in_vendor, chosen_description, chosen_vendor, initialize, missing_vendors, product_name,
    triton_launcher, vendor_reports,
};
pub use streams::native_stream;
pub use types::*;

/// The table of this library.
pub static API: FlagosApi = FlagosApi {
    struct_size: std::mem::size_of::<FlagosApi>(),
    abi_version: FLAGOS_ABI_VERSION,
    last_error: status::last_error,
    init: init::init,
    device_count: init::device_count,
    device_properties: init::device_properties,
    mem_alloc: memory::alloc,
    mem_free: memory::free,
    mem_record_stream: memory::record_stream,
    mem_empty_cache: memory::empty_cache,
    mem_stats: memory::stats,
    mem_reset_peak: memory::reset_peak,
    mem_reset_accumulated: memory::reset_accumulated,
    mem_info: memory::info,
    mem_set_fraction: memory::set_fraction,
    mem_snapshot_json: memory::snapshot_json,
    string_free: status::string_free,
    mem_device_of: memory::device_of,
    pinned_alloc: pinned::alloc,
    pinned_free: pinned::free,
    is_pinned: pinned::is_pinned,
    pinned_record: pinned::record,
    stream_create: streams::create,
    stream_query: streams::query,
    stream_sync: streams::sync,
    device_sync: streams::device_sync,
    stream_launch: streams::launch,
    copy_async: streams::copy,
    pending: streams::pending,
    event_create: events::create,
    event_destroy: events::destroy,
    event_record: events::record,
    event_wait: events::wait,
    event_query: events::query,
    event_sync: events::sync,
    event_elapsed: events::elapsed,
    op_slot: operators::slot,
    op_blocked_reason: operators::blocked_reason,
    pinned_stats: pinned::stats,
    pinned_reset_peak: pinned::reset_peak,
    pinned_reset_accumulated: pinned::reset_accumulated,
    op_record_fallback: operators::record_fallback,
    launch_create: launches::create,
    launch_run: launches::run,
    launch_free: launches::free,
    op_log_dispatch: operators::log_dispatch,
    mem_alloc_at: memory::alloc_at,
    mem_free_at: memory::free_at,
    mem_record_stream_at: memory::record_stream_at,
    recording_read: recordings::read,
    recording_free: recordings::free,
    vendor: vendor::describe,
    kernels: kernels::table,
    stream_library: kernels::stream,
    stream_native: streams::native,
    graph_supported: graphs::supported,
    graph_memory_create: graphs::memory_create,
    graph_create: graphs::create,
    graph_capture_begin: graphs::capture_begin,
    graph_capture_end: graphs::capture_end,
    graph_replay: graphs::replay,
    graph_reset: graphs::reset,
    graph_memory: graphs::memory,
    graph_device: graphs::device,
    graph_destroy: graphs::destroy,
    stream_capture_status: graphs::status_of,
    memory_sharing: sharing::supported,
    memory_export: sharing::export,
    memory_import: sharing::import,
    memory_close: sharing::close,
    function_load: launches::load,
    mem_record_stream_of: memory::record_stream_of,
    op_record_decline: operators::record_decline,
    stream_post: kernels::post,
    stream_flush: kernels::flush,
    queues_flush: kernels::flush_all,
    queues_counts: kernels::counts,
    queues_inject: kernels::inject,
};

/// The table, valid for the life of the process.
pub fn api() -> &'static FlagosApi {
    &API
}

#[cfg(all(test, not(loom)))]
mod tests;
