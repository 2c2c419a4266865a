//! Errors of MACA's runtime, whose numbers are those of CUDA's runtime, with some of its own.

use flagos_core::error::{Error, ErrorKind, Result};

use super::api::{Api, Code, SONAME, SUCCESS};
use super::visible;

/// `mcErrorMemoryAllocation`.
const OUT_OF_MEMORY: Code = 2;
/// `mcErrorInvalidValue`.
pub(super) const INVALID_VALUE: Code = 1;
/// `mcErrorInitializationError`: in a forked child, for one.
pub(super) const NOT_INITIALIZED: Code = 3;
/// `mcErrorSymbolNotFound`: a module has no such function.
pub(super) const NOT_FOUND: Code = 500;
/// `mcErrorPeerAccessAlreadyEnabled`.
pub(super) const PEER_ALREADY: Code = 704;

/// The codes that the vendor gives for what goes wrong, by the names that its library has for them.
const NAMES: &[(Code, &str)] = &[
    (1, "mcErrorInvalidValue"),
    (2, "mcErrorMemoryAllocation"),
    (3, "mcErrorInitializationError"),
    (4, "mcErrorDeinitialized"),
    (100, "mcErrorNoDevice"),
    (101, "mcErrorInvalidDevice"),
    (214, "mcErrorECCNotCorrectable"),
    (400, "mcErrorInvalidResourceHandle"),
    (500, "mcErrorSymbolNotFound"),
    (600, "mcErrorNotReady"),
    (700, "mcErrorIllegalAddress"),
    (702, "mcErrorLaunchTimeOut"),
    (704, "mcErrorPeerAccessAlreadyEnabled"),
    (709, "mcErrorContextIsDestroyed"),
    (710, "mcErrorAssert"),
    (714, "mcErrorHardwareStackError"),
    (715, "mcErrorIllegalInstruction"),
    (716, "mcErrorMisalignedAddress"),
    (717, "mcErrorInvalidAddressSpace"),
    (718, "mcErrorInvalidPc"),
    (719, "mcErrorLaunchFailure"),
    (800, "mcErrorNotPermitted"),
    (801, "mcErrorNotSupported"),
    (900, "mcErrorStreamCaptureUnsupported"),
    (901, "mcErrorStreamCaptureInvalidated"),
    (999, "mcErrorUnknown"),
    (10_003, "mcErrorDriverMismatch"),
    (10_018, "mcErrorWaitTimeout"),
    (10_019, "mcErrorInternal"),
];

/// The codes after which every later call of the process fails, as on CUDA.
const LOST: [Code; 11] = [214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];

impl Api {
    /// The result of a call that returned this code.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(failed(self, call, code))
    }

    /// The error of a function that the library lacks.
    pub(super) fn lacks(&self, name: &'static str) -> Error {
        missing(name)
    }
}

#[cold]
pub(super) fn missing(name: &'static str) -> Error {
    let message = format!("{SONAME} has no {name}");
    Error::unsupported(name, message).with_hint("install a newer version of MACA")
}

/// The error of a call that failed, which the runtime keeps no longer.
#[cold]
pub(super) fn failed(api: &Api, call: &'static str, code: Code) -> Error {
    api.forget_failure();
    let (name, text) = api.describe(code);
    explain(call, code, name, text)
}

fn known_name(code: Code) -> Option<&'static str> {
    let known = NAMES.iter().find(|(known, _)| *known == code);
    known.map(|(_, name)| *name)
}

fn explain(call: &'static str, code: Code, name: Option<String>, text: Option<String>) -> Error {
    let kind = match code {
        OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        _ => ErrorKind::Device,
    };
    // The library's own name, behind which ours is: texts of other libraries are recognised by it.
    let known = known_name(code).unwrap_or("error");
    let message = match (name, text) {
        (Some(name), Some(text)) if name == known || name == text => {
            format!("{known} ({code}): {text}")
        }
        (Some(name), Some(text)) => format!("{known} ({code}): {name}: {text}"),
        (Some(text), None) | (None, Some(text)) => format!("{known} ({code}): {text}"),
        (None, None) => format!("{known} ({code})"),
    };
    Error::new(kind, call, message).with_hint(hint(code))
}

fn hint(code: Code) -> String {
    if LOST.contains(&code) {
        return "every later call of this process fails: restart the process; MACA_LAUNCH_BLOCKING=1 finds the kernel \
                at fault"
            .into();
    }
    match code {
        OUT_OF_MEMORY => "free memory; `mx-smi` shows which processes hold it".into(),
        NOT_INITIALIZED => {
            "the runtime was initialised before this process was forked: use the 'spawn' start method".into()
        }
        100 | 101 => format!("check {} and `mx-smi`", visible::VARIABLE),
        400 => "the stream or event was destroyed, or belongs to another device".into(),
        800 => "work running on a stream must not call the runtime: call it from another thread".into(),
        900..=908 => "a capture forbids this call: make it before the capture, or after it".into(),
        10_003 => "the driver and the libraries of MACA are of different versions: install those of one release".into(),
        _ => "`flagos doctor` examines the driver and the devices; `mx-smi` must work".into(),
    }
}

/// The names of the codes after which the device stays unusable, for texts of other libraries.
pub(super) fn lost_names() -> impl Iterator<Item = &'static str> {
    LOST.iter().filter_map(|code| known_name(*code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_call_the_error_and_the_next_step() {
        let name = Some("mcErrorMemoryAllocation".into());
        let error = explain("mcMalloc", 2, name, Some("out of memory".into()));
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(
            error.to_string(),
            "mcMalloc: mcErrorMemoryAllocation (2): out of memory; \
             free memory; `mx-smi` shows which processes hold it"
        );
        let error = explain("mcMalloc", 10_033, None, None).to_string();
        assert!(error.starts_with("mcMalloc: error (10033); "), "{error}");
        let other = Some("cudaErrorInvalidValue".into());
        let error = explain("mcFree", 1, other, Some("invalid argument".into())).to_string();
        let says = "mcFree: mcErrorInvalidValue (1): cudaErrorInvalidValue: invalid argument; ";
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn a_lost_device_is_said_to_be_lost() {
        let says = |code| hint(code).contains("restart the process");
        assert!(LOST.iter().all(|code| says(*code)));
        assert!(
            ![1, 2, 400, 600, 801, 901, 10_018]
                .iter()
                .any(|code| says(*code))
        );
        assert_eq!(lost_names().count(), LOST.len(), "each has a name");
    }

    #[test]
    fn every_code_is_named_once_and_in_order() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
