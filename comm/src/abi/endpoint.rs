//! The table's functions on a communicator of a device.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::call::{call, rank};
use super::failure::{null, status};
use super::foreign::list;
use super::group::alive;
use super::types::{FlagosCollective, FlagosCommEndpoint, FlagosCommGroup, FlagosCommLowered};
use crate::communicator::Stream;
use crate::group::Endpoint;
use crate::{Communicator, Result};

/// # Safety
/// `group` is NULL or alive; the outputs are NULL or valid for writing.
pub(super) unsafe extern "C" fn endpoint(
    group: *const FlagosCommGroup,
    device: i32,
    peer: i32,
    timeout_ms: u64,
    out: *mut *const FlagosCommEndpoint,
    own_rank: *mut i32,
    size: *mut i32,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { alive(group)? };
        if out.is_null() || own_rank.is_null() || size.is_null() {
            return Err(null("an output"));
        }
        let timeout = Duration::from_millis(timeout_ms);
        let found = group.endpoints().get(device, rank(peer)?, timeout)?;
        // SAFETY: checked above. The group keeps the endpoint as long as it lives.
        unsafe {
            own_rank.write(found.rank as i32);
            size.write(found.size as i32);
            out.write(Arc::as_ptr(&found).cast());
        }
        Ok(())
    })
}

/// # Safety
/// `endpoint` is NULL or one of a group that is alive.
unsafe fn connected<'a>(endpoint: *const FlagosCommEndpoint) -> Result<&'a dyn Communicator> {
    // SAFETY: the caller's promise; `endpoint` above made the address.
    let endpoint = unsafe { endpoint.cast::<Endpoint>().as_ref() };
    Ok(&*endpoint.ok_or_else(|| null("the endpoint"))?.communicator)
}

/// # Safety
/// As [`submit`]; `out` is NULL or valid for writing.
pub(super) unsafe extern "C" fn lower(
    endpoint: *const FlagosCommEndpoint,
    given: *const FlagosCollective,
    out: *mut FlagosCommLowered,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (communicator, given) = unsafe { (connected(endpoint)?, call(given)?) };
        if out.is_null() {
            return Err(null("an output"));
        }
        let lowered = communicator.lower(&given)?;
        // SAFETY: checked above.
        unsafe {
            out.write(FlagosCommLowered {
                reduce: lowered.reduce as u32,
                scale_sends: u32::from(lowered.scale_sends),
                divide_result: u32::from(lowered.divide_result),
                gathers: u32::from(lowered.gathers),
            });
        }
        Ok(())
    })
}

/// # Safety
/// `endpoint` is NULL or one of a group that is alive; `calls` is valid for `count` calls, whose buffers are valid
/// until the calls are done; `stream` is one of the buffers' device.
pub(super) unsafe extern "C" fn submit(
    endpoint: *const FlagosCommEndpoint,
    calls: *const FlagosCollective,
    count: u64,
    grouped: i32,
    stream: *mut c_void,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let (communicator, calls) = unsafe { (connected(endpoint)?, list(calls, count as usize)) };
        let issue = || {
            calls.iter().try_for_each(|given| {
                // SAFETY: the caller's promise.
                unsafe { communicator.issue(&call(given)?, Stream(stream)) }
            })
        };
        if grouped == 0 {
            return issue();
        }
        communicator.group_start()?;
        let outcome = issue();
        // The group is ended also after a failure, or the thread's next calls would be queued in it.
        let ended = communicator.group_end();
        outcome.and(ended)
    })
}
