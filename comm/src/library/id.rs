//! The id of a new group, which rank 0's library makes.

use std::ffi::c_char;

use crate::store::share;
use crate::{Config, Error, ErrorKind, Result, Store};

/// Gives every rank the id of `N` bytes that rank 0 makes with its library. All ranks call it.
pub(super) fn share_id<const N: usize>(
    config: &Config,
    store: &dyn Store,
    engine: &str,
    make: impl FnOnce() -> Result<[c_char; N]>,
) -> Result<[c_char; N]> {
    let (bytes, _) = share(
        store,
        config.rank,
        config.size,
        config.timeout,
        engine,
        |_| Ok(make()?.map(|byte| byte as u8).to_vec()),
    )?;
    let told = bytes.len();
    let bytes: [u8; N] = bytes.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Mismatch,
            format!("rank 0 sent an id of {told} bytes, ids of {engine} have {N}"),
        )
    })?;
    Ok(bytes.map(|byte| byte as c_char))
}
