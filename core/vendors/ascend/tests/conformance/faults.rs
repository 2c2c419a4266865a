//! What the vendor makes of failures, which the simulated runtime has on request: `simulated` runs each test in a process
//! with the settings that it needs.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use flagos_core::runtime::{CaptureMode, Runtime, StreamGraph};
use flagos_core::{Error, ErrorKind, Result};
use flagos_vendor_kit::conformance::Pinned;

use crate::{TESTED, copy, open};

fn runtime() -> Runtime {
    let vendor = TESTED.open_again();
    Runtime::new(vendor.expect("it opens")).expect("a runtime")
}

/// The error of a call on a lost device.
fn is_lost<T>(outcome: Result<T>) -> Error {
    let Err(error) = outcome else {
        panic!("a lost device was used")
    };
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    let text = error.to_string();
    assert!(TESTED.description().means_lost(&text), "{text}");
    assert!(text.contains("restart the process"), "{text}");
    error
}

#[test]
#[ignore = "needs aclrtMemcpyAsync=2"]
fn failed_work_loses_the_device() {
    let ascend = open().expect("a device");
    let vendor = &*ascend.vendor;
    let stream = vendor.stream(0, 0).expect("a stream");
    let event = vendor.event(0, false).expect("an event");
    let memory = vendor.alloc(0, 64).expect("memory");
    let host = Pinned::new(vendor, 64).expect("memory");
    copy(&*stream, memory.as_ptr(), host.address(), 64);
    stream.sync().expect("the first copy is good");
    copy(&*stream, memory.as_ptr(), host.address(), 64);
    // Whoever looks first is told.
    let error = is_lost(stream.sync());
    let text = error.to_string();
    assert!(
        text.contains("ACL_ERROR_RT_AICORE_EXCEPTION (507015): E507015: "),
        "the vendor's text: {text}"
    );
    assert!(text.contains("~/ascend/log"), "{text}");
    for error in [
        is_lost(stream.sync()),
        is_lost(vendor.device_sync(0)),
        is_lost(vendor.alloc(0, 64)),
        is_lost(vendor.event(0, false)),
        is_lost(vendor.stream(0, 0)),
        is_lost(stream.record(&*event)),
        // SAFETY: nothing is copied.
        is_lost(unsafe { stream.copy(memory.as_ptr(), host.address(), 64) }),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("the device was lost: aclrtSynchronizeStream: "),
            "{text}"
        );
        assert!(text.contains("507015"), "{text}");
    }
    // SAFETY: nothing runs any more; a lost device keeps it.
    unsafe { vendor.free(0, memory, 64) };
    if vendor.device_count() > 1 {
        let stream = vendor.stream(1, 0).expect("the other device works");
        stream.sync().expect("the other device works");
    }
}

#[test]
#[ignore = "needs aclrtMallocAlign32=2"]
fn memory_that_has_run_out_is_looked_for_again() {
    let runtime = runtime();
    let memory = runtime.memory();
    let cached = memory.alloc(0, 0, 3 << 20).expect("memory").expect("some");
    memory.free(cached.block).expect("allocated");
    let again = memory.alloc(0, 0, 30 << 20).expect("the second attempt");
    let stats = memory.stats(0).expect("stats");
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 0));
    assert_eq!(stats.num_device_free, 1, "the cache was given back");
    memory.free(again.expect("some").block).expect("allocated");
}

#[test]
#[ignore = "needs every aclrtMallocAlign32 to fail"]
fn memory_that_has_run_out_for_good_is_an_error() {
    let runtime = runtime();
    let error = runtime.memory().alloc(0, 0, 30 << 20);
    let error = error.expect_err("every attempt failed");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains("aclrtMallocAlign32: "), "{text}");
    assert!(text.contains("`npu-smi info`"), "{text}");
    assert!(error.report().contains("reserved"), "the table");
    let stats = runtime.memory().stats(0).expect("stats");
    assert_eq!(stats.num_ooms, 1);
}

#[test]
#[ignore = "a process of its own"]
fn numbers_overflow_to_infinity() {
    let ascend = open().expect("a device");
    let _stream = ascend.vendor.stream(0, 0).expect("a stream");
    let name = CString::new("aclrtGetDeviceSatMode").expect("no NUL");
    // SAFETY: a text that ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: the function of this name in the simulated runtime.
    let ask: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(found) };
    let mut mode = -1;
    // SAFETY: a valid output, on a thread whose context is current.
    assert_eq!(unsafe { ask(&mut mode) }, 0);
    assert_eq!(mode, 1, "INFNAN");
}

#[test]
#[ignore = "needs a runtime without the mode"]
fn a_chip_keeps_its_way_to_overflow() {
    let ascend = open().expect("a device");
    let stream = ascend.vendor.stream(0, 0).expect("a stream");
    stream.sync().expect("it works");
}

#[test]
#[ignore = "needs a runtime without aclmdlRICaptureBegin"]
fn what_captures_need_is_named() {
    let ascend = open().expect("a device");
    let error = ascend.vendor.captures().expect_err("it is missing");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(
        text.contains("libascendcl.so has no aclmdlRICaptureBegin; "),
        "{text}"
    );
    let stream = ascend.vendor.stream(0, 0).expect("a stream");
    assert!(stream.begin_capture(CaptureMode::Global).is_err());
    assert_eq!(stream.capture().ok(), Some(None));
    ascend.vendor.device_sync(0).expect("nothing is captured");
}

#[test]
#[ignore = "needs aclmdlRICaptureBegin=1:207000"]
fn a_chip_without_graphs_says_so() {
    let ascend = open().expect("a device");
    let stream = ascend.vendor.stream(0, 0).expect("a stream");
    let error = stream.begin_capture(CaptureMode::Global);
    let error = error.expect_err("the chip has none");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("207000"), "{error}");
    ascend.vendor.device_sync(0).expect("nothing is captured");
}

#[test]
#[ignore = "needs a device with few streams"]
fn a_graph_that_takes_too_many_streams_is_an_error() {
    let runtime = runtime();
    let ids: Vec<u64> = (0..3)
        .map(|_| runtime.streams().create(0, 0).expect("a stream"))
        .collect();
    let graph = StreamGraph::default();
    let begun = graph.begin_capture(&runtime, (0, ids[0]), None, CaptureMode::Global);
    begun.expect("captured");
    let error = graph.end_capture(&runtime).expect_err("no stream is left");
    let text = error.to_string();
    assert!(
        text.contains("207008") && text.contains("every graph takes some"),
        "{text}"
    );
    runtime
        .vendor()
        .device_sync(0)
        .expect("nothing is captured");
    let stream = runtime.streams().get(0, ids[0]).expect("it exists");
    stream.sync().expect("it works");
    drop(Arc::new(graph));
}
