//! Errors of the statuses that a library returns.

use std::fmt::Display;

use crate::error::{Error, ErrorKind};

use super::types::{
    FLAGOS_VENDOR_CONFIG, FLAGOS_VENDOR_DEVICE, FLAGOS_VENDOR_DEVICE_LOST, FLAGOS_VENDOR_INTERNAL,
    FLAGOS_VENDOR_INVALID_ARGUMENT, FLAGOS_VENDOR_OUT_OF_MEMORY, FLAGOS_VENDOR_UNSUPPORTED,
};

const DEFECT: &str = "this is a defect of the vendor's library: report it to the vendor";
const LOST: &str =
    "the device is lost for this process and every later call fails: restart the process";

/// The error of a `function` of the vendor's table that returned `code`, which is not success.
#[cold]
pub(super) fn error(
    vendor: &str,
    function: &'static str,
    code: i32,
    text: Option<String>,
) -> Error {
    let (kind, hint) = match code {
        FLAGOS_VENDOR_INVALID_ARGUMENT => (ErrorKind::InvalidArgument, None),
        FLAGOS_VENDOR_CONFIG => (ErrorKind::Config, None),
        FLAGOS_VENDOR_OUT_OF_MEMORY => (ErrorKind::OutOfMemory, Some("free memory")),
        FLAGOS_VENDOR_DEVICE => (ErrorKind::Device, None),
        FLAGOS_VENDOR_UNSUPPORTED => (ErrorKind::Unsupported, None),
        FLAGOS_VENDOR_INTERNAL => (ErrorKind::Internal, Some(DEFECT)),
        FLAGOS_VENDOR_DEVICE_LOST => (ErrorKind::Device, Some(LOST)),
        _ => {
            let detail = text.map_or_else(String::new, |text| format!(": {text}"));
            let message = format!("the status {code} is none of flagos_vendor.h{detail}");
            return Error::device(function, message).with_context("vendor", vendor);
        }
    };
    let message = text.unwrap_or_else(|| "the vendor's library gives no reason".into());
    let error = Error::new(kind, function, message).with_context("vendor", vendor);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The status by which a library reports an error of this kind; whether the device is lost is for the vendor to say.
#[must_use]
pub fn status_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::InvalidArgument => FLAGOS_VENDOR_INVALID_ARGUMENT,
        ErrorKind::Config => FLAGOS_VENDOR_CONFIG,
        ErrorKind::OutOfMemory => FLAGOS_VENDOR_OUT_OF_MEMORY,
        ErrorKind::Unsupported => FLAGOS_VENDOR_UNSUPPORTED,
        ErrorKind::Internal => FLAGOS_VENDOR_INTERNAL,
        ErrorKind::Device | ErrorKind::NotInitialized | ErrorKind::Forked => FLAGOS_VENDOR_DEVICE,
    }
}

/// The error of a `function` that succeeded with a result that cannot be.
#[cold]
pub(super) fn broken(vendor: &str, function: &'static str, result: impl Display) -> Error {
    Error::internal(function, format!("the vendor's library gave {result}"))
        .with_context("vendor", vendor)
        .with_hint(DEFECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_kinds() {
        for (code, kind) in [
            (FLAGOS_VENDOR_INVALID_ARGUMENT, ErrorKind::InvalidArgument),
            (FLAGOS_VENDOR_CONFIG, ErrorKind::Config),
            (FLAGOS_VENDOR_OUT_OF_MEMORY, ErrorKind::OutOfMemory),
            (FLAGOS_VENDOR_DEVICE, ErrorKind::Device),
            (FLAGOS_VENDOR_UNSUPPORTED, ErrorKind::Unsupported),
            (FLAGOS_VENDOR_INTERNAL, ErrorKind::Internal),
            (FLAGOS_VENDOR_DEVICE_LOST, ErrorKind::Device),
            (-1, ErrorKind::Device),
            (77, ErrorKind::Device),
        ] {
            let error = error("chip", "memory_alloc", code, Some("because".into()));
            assert_eq!(error.kind(), kind, "{code}");
            assert!(error.message().contains("because"), "{error}");
            assert_eq!(error.context("vendor"), Some("chip"));
            let same = ErrorKind::from_status(code).is_none_or(|named| named == kind);
            assert!(same, "the numbers of flagos.h are the same");
        }
        let lost = error("chip", "stream_sync", FLAGOS_VENDOR_DEVICE_LOST, None);
        assert_eq!(
            lost.to_string(),
            format!("stream_sync: the vendor's library gives no reason (vendor: chip); {LOST}")
        );
    }
}
