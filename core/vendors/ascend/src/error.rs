//! Errors of the ACL runtime.

use flagos_core::error::{Error, ErrorKind, Result};

use super::api::{Api, Code, SONAME, SUCCESS};

/// `ACL_ERROR_REPEAT_INITIALIZE`: another user of the library has initialised it.
pub(super) const REPEAT_INITIALIZE: Code = 100_002;
/// A stream of another context.
pub(super) const STREAM_CONTEXT: Code = 107_003;
/// An event without a time.
pub(super) const TIMESTAMP_INVALID: Code = 107_006;
/// The end was recorded before the start.
pub(super) const TIMESTAMP_REVERSAL: Code = 107_007;

/// The stream is in no capture.
pub(super) const STREAM_NOT_CAPTURED: Code = 107_029;

/// The names of the codes, without `ACL_ERROR_` of those below 107000, and without `ACL_ERROR_RT_` of the others.
const NAMES: &[(Code, &str)] = &[
    (100_000, "INVALID_PARAM"),
    (100_001, "UNINITIALIZE"),
    (100_002, "REPEAT_INITIALIZE"),
    (100_003, "INVALID_FILE"),
    (100_037, "REPEAT_FINALIZE"),
    (107_000, "PARAM_INVALID"),
    (107_001, "INVALID_DEVICEID"),
    (107_002, "CONTEXT_NULL"),
    (107_003, "STREAM_CONTEXT"),
    (107_004, "MODEL_CONTEXT"),
    (107_005, "STREAM_MODEL"),
    (107_006, "EVENT_TIMESTAMP_INVALID"),
    (107_007, "EVENT_TIMESTAMP_REVERSAL"),
    (107_008, "ADDR_UNALIGNED"),
    (107_009, "FILE_OPEN"),
    (107_015, "STREAM_NO_CB_REG"),
    (107_016, "INVALID_MEMORY_TYPE"),
    (107_017, "INVALID_HANDLE"),
    (107_018, "INVALID_MALLOC_TYPE"),
    (107_019, "WAIT_TIMEOUT"),
    (107_020, "TASK_TIMEOUT"),
    (107_022, "DEVICE_TASK_ABORT"),
    (107_023, "STREAM_ABORT"),
    (107_024, "CAPTURE_DEPENDENCY"),
    (107_025, "STREAM_UNJOINED"),
    (107_026, "MODEL_CAPTURED"),
    (107_027, "STREAM_CAPTURED"),
    (107_028, "EVENT_CAPTURED"),
    (107_029, "STREAM_NOT_CAPTURED"),
    (107_030, "CAPTURE_MODE_NOT_SUPPORT"),
    (107_031, "STREAM_CAPTURE_IMPLICIT"),
    (107_036, "STREAM_CAPTURE_UNMATCHED"),
    (107_037, "MODEL_RUNNING"),
    (107_038, "STREAM_CAPTURE_WRONG_THREAD"),
    (200_000, "BAD_ALLOC"),
    (200_001, "API_NOT_SUPPORT"),
    (200_002, "INVALID_DEVICE"),
    (200_003, "MEMORY_ADDRESS_UNALIGNED"),
    (200_004, "RESOURCE_NOT_MATCH"),
    (200_005, "INVALID_RESOURCE_HANDLE"),
    (200_006, "FEATURE_UNSUPPORTED"),
    (207_000, "FEATURE_NOT_SUPPORT"),
    (207_001, "MEMORY_ALLOCATION"),
    (207_002, "MEMORY_FREE"),
    (207_003, "AICORE_OVER_FLOW"),
    (207_004, "NO_DEVICE"),
    (207_005, "RESOURCE_ALLOC_FAIL"),
    (207_006, "NO_PERMISSION"),
    (207_007, "NO_EVENT_RESOURCE"),
    (207_008, "NO_STREAM_RESOURCE"),
    (207_009, "NO_NOTIFY_RESOURCE"),
    (207_010, "NO_MODEL_RESOURCE"),
    (207_015, "REPEATED_INIT"),
    (207_018, "DEVICE_OOM"),
    (207_019, "FEATURE_NOT_SUPPORT_UPDATE_OP"),
    (207_020, "TIMEOUT"),
    (300_000, "STORAGE_OVER_LIMIT"),
    (500_000, "INTERNAL_ERROR"),
    (507_000, "INTERNAL_ERROR"),
    (507_001, "TS_ERROR"),
    (507_010, "LOST_HEARTBEAT"),
    (507_011, "MODEL_EXECUTE"),
    (507_014, "AICORE_TIMEOUT"),
    (507_015, "AICORE_EXCEPTION"),
    (507_017, "AICPU_TIMEOUT"),
    (507_018, "AICPU_EXCEPTION"),
    (507_034, "VECTOR_CORE_TIMEOUT"),
    (507_035, "VECTOR_CORE_EXCEPTION"),
    (507_046, "STREAM_SYNC_TIMEOUT"),
    (507_047, "EVENT_SYNC_TIMEOUT"),
    (507_048, "FFTS_PLUS_TIMEOUT"),
    (507_053, "DEVICE_MEM_ERROR"),
    (507_054, "HBM_MULTI_BIT_ECC"),
    (507_056, "LINK_ERROR"),
    (507_899, "DRV_INTERNAL"),
    (507_900, "AICPU_INTERNAL"),
    (507_901, "SOCKET_CLOSE"),
    (507_903, "STREAM_CAPTURE_INVALIDATED"),
];

/// The most characters of the vendor's text that a message shows. An error's detail has all of it.
const LONGEST_TEXT: usize = 400;

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
    #[cold]
    pub(super) fn lacks(&self, name: &'static str) -> Error {
        let message = format!("{SONAME} has no {name}");
        Error::unsupported(name, message).with_hint("install a newer version of CANN")
    }
}

/// The error of a call that returned this code.
#[cold]
pub(super) fn failed(api: &Api, call: &'static str, code: Code) -> Error {
    explain(call, code, api.recent_error().as_deref())
}

/// The name of a code, as the vendor's documentation has it.
fn name(code: Code) -> Option<String> {
    let (_, name) = NAMES.iter().find(|(known, _)| *known == code)?;
    let runtime = matches!(code / 1000, 107 | 207 | 507);
    let prefix = if runtime {
        "ACL_ERROR_RT_"
    } else {
        "ACL_ERROR_"
    };
    Some(format!("{prefix}{name}"))
}

/// The error of a code, with the vendor's text.
pub(super) fn explain(call: &'static str, code: Code, text: Option<&str>) -> Error {
    let kind = match code {
        200_000 | 207_001 | 207_018 => ErrorKind::OutOfMemory,
        _ => ErrorKind::Device,
    };
    let name = name(code).unwrap_or_else(|| "error".into());
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    let words = words.join(" ");
    let shown: String = words.chars().take(LONGEST_TEXT).collect();
    let message = match (&shown[..], shown.len() < words.len()) {
        ("", _) => format!("{name} ({code})"),
        (shown, false) => format!("{name} ({code}): {shown}"),
        (shown, true) => format!("{name} ({code}): {shown}…"),
    };
    let error = Error::new(kind, call, message).with_hint(hint(code));
    match text {
        Some(text) => error.with_detail(text),
        None => error,
    }
}

fn hint(code: Code) -> &'static str {
    if is_lost(code) {
        return "the device's state is lost: restart the process; the logs in ~/ascend/log name the kernel at fault";
    }
    match code {
        200_000 | 207_001 | 207_018 => "free memory; `npu-smi info` shows which processes hold it",
        207_005 | 207_008 => {
            "there are about 2000 streams on a device, of which every graph takes some: use fewer streams and graphs, \
             and drop those that are not used"
        }
        107_024 | 107_028 => {
            "within a capture, streams and events of that capture alone wait for each other"
        }
        107_025 => {
            "before a capture ends, its first stream waits for an event behind the work of every other one"
        }
        107_030 | 107_031 | 107_036 | 507_903 => {
            "the capture is invalid, because of a call that a capture forbids: capture again without it"
        }
        107_038 => "end a capture on the thread that began it, or begin it in the mode `relaxed`",
        107_002 => "flagos makes a device's context current before every call: please report it",
        107_003 => "the stream was destroyed, or belongs to another device or context",
        107_001 | 207_004 => "check ASCEND_RT_VISIBLE_DEVICES and `npu-smi info`",
        207_006 => "the user needs access to /dev/davinci*: the group HwHiAiUser has it",
        _ => "`flagos doctor` examines the driver and the devices; the logs are in ~/ascend/log",
    }
}

/// Whether the device stays unusable after this code.
pub(super) fn is_lost(code: Code) -> bool {
    // 507002 to 507006 say that a stream or an event is not ready; 507012, 507046 and 507047 are waits that ended early.
    const HARMLESS: [Code; 8] = [
        507_002, 507_003, 507_004, 507_005, 507_006, 507_012, 507_046, 507_047,
    ];
    (507_000..=507_099).contains(&code) && !HARMLESS.contains(&code)
}

/// Whether the device stays unusable after an error whose message is this one.
pub(super) fn means_lost(message: &str) -> bool {
    lost_names().iter().any(|name| message.contains(name))
}

/// The names of the codes after which the device stays unusable, for texts of other libraries.
pub(super) fn lost_names() -> Vec<String> {
    let lost = NAMES.iter().filter(|(code, _)| is_lost(*code));
    lost.filter_map(|(code, _)| name(*code)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_call_the_name_the_code_and_the_vendors_text() {
        let text = "EL0004: [PID: 1] Failed to allocate memory.\n  Possible Cause: none left.";
        let error = explain("aclrtMallocAlign32", 207_001, Some(text));
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(
            error.to_string(),
            "aclrtMallocAlign32: ACL_ERROR_RT_MEMORY_ALLOCATION (207001): EL0004: [PID: 1] Failed to allocate \
             memory. Possible Cause: none left.; free memory; `npu-smi info` shows which processes hold it"
        );
        assert!(error.report().ends_with(text));
        let error = explain("aclInit", 100_001, None);
        assert!(
            error
                .to_string()
                .starts_with("aclInit: ACL_ERROR_UNINITIALIZE (100001); ")
        );
    }

    #[test]
    fn kinds_follow_the_codes() {
        let kind = |code| explain("call", code, None).kind();
        for code in [200_000, 207_001, 207_018] {
            assert_eq!(kind(code), ErrorKind::OutOfMemory, "{code}");
        }
        for code in [107_002, 207_008, 507_015, 507_899, 999_999] {
            assert_eq!(kind(code), ErrorKind::Device, "{code}");
        }
        let unknown = explain("call", 999_999, None).to_string();
        assert!(unknown.starts_with("call: error (999999); "), "{unknown}");
    }

    #[test]
    fn a_lost_device_is_said_to_be_lost() {
        let says = |code| {
            explain("call", code, None)
                .to_string()
                .contains("restart the process")
        };
        for code in [507_000, 507_015, 507_035, 507_054, 507_056] {
            assert!(says(code), "{code}");
        }
        for code in [107_003, 207_001, 507_046, 507_012, 507_903] {
            assert!(!says(code), "{code}");
        }
        let names = lost_names();
        assert!(names.contains(&"ACL_ERROR_RT_AICORE_EXCEPTION".to_owned()));
        assert!(!names.iter().any(|name| name.contains("SYNC_TIMEOUT")));
    }

    #[test]
    fn a_long_text_is_cut_in_the_message_alone() {
        let text = "word ".repeat(1000);
        let error = explain("call", 507_015, Some(&text));
        assert!(error.to_string().len() < 700);
        assert!(error.report().trim_end().ends_with(text.trim_end()));
    }

    #[test]
    fn every_code_is_named_once_and_in_order() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
