//! The C table: communicators as adapters compiled elsewhere see them.
//!
//! Each entry checks its pointers, catches panics and turns the outcome into a status; the message waits
//! in a thread-local for `last_error`.

mod entries;
mod types;

pub use types::*;

/// The table of this library.
pub static API: FlagosCommApi = FlagosCommApi {
    struct_size: std::mem::size_of::<FlagosCommApi>() as u64,
    abi_version: FLAGOS_COMM_ABI_VERSION,
    last_error: entries::last_error,
    last_culprit: entries::last_culprit,
    string_free: entries::string_free,
    connect: entries::connect,
    disconnect: entries::disconnect,
    engine: entries::engine,
    on_streams: entries::on_streams,
    run: entries::run,
    receive_any: entries::receive_any,
    group_start: entries::group_start,
    group_end: entries::group_end,
    abort: entries::abort,
    async_error: entries::async_error,
    state_json: entries::state_json,
    probe: entries::probe,
};

/// The table, valid for the life of the process.
pub fn api() -> &'static FlagosCommApi {
    &API
}
