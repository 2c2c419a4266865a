//! The C table, by which separately compiled adapters use process groups.
//!
//! Each entry checks its pointers, catches panics and turns the outcome into a status; the message waits
//! in a thread-local for `last_error`.

mod call;
mod endpoint;
mod failure;
mod foreign;
mod group;
mod types;

pub use types::*;

/// The table of this library.
pub static API: FlagosCommApi = FlagosCommApi {
    struct_size: std::mem::size_of::<FlagosCommApi>() as u64,
    abi_version: FLAGOS_COMM_ABI_VERSION,
    last_error: failure::last_error,
    string_free: group::string_free,
    group_open: group::group_open,
    group_close: group::group_close,
    host: group::host,
    host_is_idle: group::host_is_idle,
    host_run: group::host_run,
    host_queue: group::host_queue,
    endpoint: endpoint::endpoint,
    lower: endpoint::lower,
    submit: endpoint::submit,
    record_begin: group::record_begin,
    record_end: group::record_end,
    report: group::report,
    abort: group::abort,
    async_error: group::async_error,
    monitored_barrier: group::monitored_barrier,
    state_json: group::state_json,
};

/// The table, valid for the life of the process.
pub fn api() -> &'static FlagosCommApi {
    &API
}
