//! Errors of CUDA calls.

use cudarc::driver::sys::CUresult;

use flagos_core::error::{Error, ErrorKind, Result};

use super::api::{Api, Code, SUCCESS};

impl Api {
    /// The result of a call that returned this code.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(failed(self, call, code))
    }
}

/// The error of a call that returned this code. The version suffix of a name stays out of messages.
#[cold]
pub(super) fn failed(api: &Api, call: &'static str, code: Code) -> Error {
    let (name, text) = api.describe(code);
    explain(call.trim_end_matches("_v2"), code, &name, &text)
}

fn explain(call: &'static str, code: Code, name: &str, text: &str) -> Error {
    let is = |known: CUresult| code == known as Code;
    let kind = match code {
        _ if is(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => ErrorKind::OutOfMemory,
        _ => ErrorKind::Device,
    };
    let error = Error::new(kind, call, format!("{name}: {text}"));
    match hint(code) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint("`flagos doctor` examines the driver and the devices"),
    }
}

fn hint(code: Code) -> Option<&'static str> {
    use CUresult as E;
    if is_sticky(code) {
        return Some(
            "the CUDA context of this process is lost and every later call fails: restart the \
             process; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer finds the kernel at fault",
        );
    }
    const HINTS: [(E, &str); 10] = [
        (
            E::CUDA_ERROR_OUT_OF_MEMORY,
            "free memory; `nvidia-smi` shows which processes hold it",
        ),
        (
            E::CUDA_ERROR_NOT_INITIALIZED,
            "CUDA was initialised before this process was forked: use the 'spawn' start method",
        ),
        (
            E::CUDA_ERROR_NO_DEVICE,
            "check CUDA_VISIBLE_DEVICES and `nvidia-smi`",
        ),
        (
            E::CUDA_ERROR_STUB_LIBRARY,
            "the libcuda.so.1 found first is a toolkit's stub: take its folder out of LD_LIBRARY_PATH",
        ),
        (
            E::CUDA_ERROR_DEVICE_UNAVAILABLE,
            "another process has the device to itself: `nvidia-smi` shows which",
        ),
        (
            E::CUDA_ERROR_NOT_PERMITTED,
            "work running on a stream must not call CUDA: call it from another thread",
        ),
        (
            E::CUDA_ERROR_SYSTEM_NOT_READY,
            "start the service nvidia-fabricmanager",
        ),
        (
            E::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            "the driver was updated while it was loaded: reboot, or reload its modules",
        ),
        (
            E::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
            "take the cuda-compat folder out of LD_LIBRARY_PATH, or update the driver",
        ),
        (
            E::CUDA_ERROR_INVALID_HANDLE,
            "the stream or event was destroyed, or belongs to another device",
        ),
    ];
    let found = HINTS.iter().find(|(known, _)| *known as Code == code);
    found.map(|(_, hint)| *hint)
}

/// Whether the context stays broken after this code.
pub(super) fn is_sticky(code: Code) -> bool {
    use CUresult as E;
    const STICKY: [E; 14] = [
        E::CUDA_ERROR_ECC_UNCORRECTABLE,
        E::CUDA_ERROR_NVLINK_UNCORRECTABLE,
        E::CUDA_ERROR_CONTAINED,
        E::CUDA_ERROR_ILLEGAL_ADDRESS,
        E::CUDA_ERROR_LAUNCH_TIMEOUT,
        E::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        E::CUDA_ERROR_ASSERT,
        E::CUDA_ERROR_HARDWARE_STACK_ERROR,
        E::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        E::CUDA_ERROR_MISALIGNED_ADDRESS,
        E::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        E::CUDA_ERROR_INVALID_PC,
        E::CUDA_ERROR_LAUNCH_FAILED,
        E::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    ];
    STICKY.iter().any(|known| *known as Code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: CUresult) -> String {
        explain("cuMemAlloc", code as Code, "CUDA_ERROR_SOME", "some text").to_string()
    }

    #[test]
    fn a_message_names_the_call_the_error_and_the_next_step() {
        let error = explain("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(
            error.to_string(),
            "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory; \
             free memory; `nvidia-smi` shows which processes hold it"
        );
        assert!(line(CUresult::CUDA_ERROR_INVALID_VALUE).contains("flagos doctor"));
        assert!(line(CUresult::CUDA_ERROR_NOT_INITIALIZED).contains("spawn"));
    }

    #[test]
    fn a_lost_context_is_said_to_be_lost() {
        let lost = |code| line(code).contains("restart the process");
        assert!(lost(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert!(lost(CUresult::CUDA_ERROR_LAUNCH_FAILED));
        assert!(!lost(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(!lost(CUresult::CUDA_ERROR_INVALID_VALUE));
        // A code of a newer driver than these bindings.
        let unknown = explain("cuInit", 98_765, "error 98765", "no description");
        assert_eq!(unknown.kind(), ErrorKind::Device);
    }
}
