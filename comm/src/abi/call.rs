//! Parsing the C description of a call.

use std::time::Duration;

use super::failure::null;
use super::foreign::list;
use super::types::{FLAGOS_COMM_ANY_RANK, FlagosCollective};
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// The rank of C's number; none for any rank.
pub(super) fn rank(given: i32) -> Result<Option<usize>> {
    if given == FLAGOS_COMM_ANY_RANK {
        return Ok(None);
    }
    usize::try_from(given)
        .map(Some)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("{given} is not a rank")))
}

/// Parses a call.
///
/// # Safety
/// `given` is NULL or valid, as are its lists, for as long as the result is used.
pub(super) unsafe fn call<'a>(given: *const FlagosCollective) -> Result<Collective<'a>> {
    // SAFETY: the caller's promise.
    let given = unsafe { given.as_ref() }.ok_or_else(|| null("the call"))?;
    let unknown = |what: &str, code: u32| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("there is no {what} {code}"),
        )
    };
    // SAFETY: the caller's promise; `usize` is 64 bits on every platform served.
    unsafe {
        let counts = |address: *const u64, length: u32| {
            let length = if address.is_null() {
                0
            } else {
                length as usize
            };
            list(address.cast::<usize>(), length)
        };
        Ok(Collective {
            kind: Kind::from_code(given.kind).ok_or_else(|| unknown("collective", given.kind))?,
            dtype: DType::from_code(given.dtype).ok_or_else(|| unknown("type", given.dtype))?,
            reduce: ReduceOp::from_code(given.reduce)
                .ok_or_else(|| unknown("reduction", given.reduce))?,
            root: rank(given.root)?,
            tag: given.tag,
            count: given.count as usize,
            factor: given.factor,
            sequence: given.sequence,
            timeout: Duration::from_millis(given.timeout_ms),
            send: list(given.send.cast(), given.sends as usize),
            recv: list(given.recv.cast(), given.receives as usize),
            send_counts: counts(given.send_counts, given.sends),
            recv_counts: counts(given.recv_counts, given.receives),
        })
    }
}
