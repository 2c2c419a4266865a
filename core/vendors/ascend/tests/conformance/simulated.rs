//! Every test of this program over a simulated runtime, for machines that have no chip.
//!
//! The simulated library is made from the vendor's documentation and not from the code under test. It appends a line to
//! its report for everything that a program does and a chip would not take.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::compiled;

/// The runtime; None without its source or a compiler, as on a machine that this program was carried to.
fn runtime() -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/simulated/libascendcl.cc");
    compiled::simulated("libascendcl.so", Path::new(source))
}

/// Whether a call that was refused is the vendor's way of asking: whether the thread has a context, whether a stream is the
/// device's, and which of two events was first. Or the suite's, of how a capture ends that streams have not left.
fn is_a_question(line: &str) -> bool {
    let asks = |call: &str, code: &str| line.starts_with(call) && line.ends_with(code);
    asks("aclrtGetCurrentContext: ", "(refused: 107002)")
        || asks("aclrtStreamQuery: ", "(refused: 107003)")
        || asks("aclrtEventElapsedTime: ", "(refused: 107007)")
        || asks("aclmdlRICaptureEnd: ", "(refused: 107025)")
        || line == "aclrtIpcMemImportByKey: the key is of this process (refused: 107000)"
}

/// How long a run of this program may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(600);

/// What every thread of a process is doing, as Linux tells it.
fn threads(process: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return String::new();
    };
    let told = |task: std::fs::DirEntry| {
        let read = |what| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
        let (name, place, call) = (read("comm"), read("wchan"), read("syscall"));
        format!("{}: {} in {}", name.trim(), call.trim(), place.trim())
    };
    let lines: Vec<_> = tasks.filter_map(|task| Some(told(task.ok()?))).collect();
    lines.join("\n")
}

/// Runs this program over the simulated runtime, with arguments and settings. Fails unless so many tests pass, for
/// everything that the simulated runtime found wrong, and for a run that does not end, with what it was doing.
fn passes(arguments: &[&str], settings: &[(&str, &str)], expected: &str) {
    let Some(library) = runtime() else {
        return crate::say("skipped: no simulated runtime, or no g++ to compile it with");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let [report, written] = ["report", "output"].map(|name| folder.path().join(name));
    let output = File::create(&written).expect("a file");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(arguments)
        // Where there is no device file, the vendor takes a library that is loaded already.
        .env("LD_PRELOAD", &library)
        .env("LD_LIBRARY_PATH", library.parent().expect("in a folder"))
        .env("FLAGOS_REQUIRE_ASCEND", "1")
        .env("SIMULATED_ASCEND_REPORT", &report)
        .env_remove("ASCEND_RT_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .stdout(output.try_clone().expect("a file"))
        .stderr(output);
    let mut child = command.spawn().expect("it runs");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let doing = match status {
        Some(_) => String::new(),
        None => format!("it did not end:\n{}", threads(child.id())),
    };
    let _ = child.kill();
    let _ = child.wait();
    let text = std::fs::read_to_string(&written).unwrap_or_default();
    let passed = status.is_some_and(|status| status.success()) && text.contains(expected);
    assert!(passed, "{arguments:?} {settings:?}:\n{text}\n{doing}");
    let wrong = std::fs::read_to_string(&report).unwrap_or_default();
    let wrong: Vec<&str> = wrong.lines().filter(|line| !is_a_question(line)).collect();
    assert_eq!(wrong, [""; 0], "{arguments:?} {settings:?}: misuses");
}

/// Every test of this program passes with these settings of the simulated runtime.
fn everything_passes(settings: &[(&str, &str)]) {
    let arguments = ["--skip", "simulated::", "--test-threads=1"];
    passes(&arguments, settings, "22 passed");
}

/// A test of `faults` passes with these settings.
fn survives(test: &str, settings: &[(&str, &str)]) {
    let test = format!("faults::{test}");
    let arguments = ["--exact", &test, "--ignored", "--nocapture"];
    passes(&arguments, settings, "1 passed");
}

const FAULT: &str = "SIMULATED_ASCEND_FAULT";

#[test]
fn failed_work_loses_the_device() {
    for version in ["9.0", "8.1"] {
        let settings = [
            (FAULT, "aclrtMemcpyAsync=2:507015"),
            ("SIMULATED_ASCEND_VERSION", version),
        ];
        survives("failed_work_loses_the_device", &settings);
    }
}

#[test]
fn memory_that_has_run_out_is_looked_for_again() {
    for code in ["207001", "207018", "200000"] {
        // A segment is asked for in two sizes, here equal ones.
        let faults = ["2", "3"].map(|nth| format!("aclrtMallocAlign32={nth}:{code}"));
        let faults = faults.join(",");
        // Memory that is aligned is asked for once.
        let settings = [(FAULT, &*faults), ("SIMULATED_ASCEND_ALIGNMENT", "512")];
        survives("memory_that_has_run_out_is_looked_for_again", &settings);
    }
}

#[test]
fn memory_that_has_run_out_for_good_is_an_error() {
    let faults: Vec<_> = (1..9)
        .map(|nth| format!("aclrtMallocAlign32={nth}:207018"))
        .collect();
    let settings = [(FAULT, &*faults.join(","))];
    survives("memory_that_has_run_out_for_good_is_an_error", &settings);
}

#[test]
fn numbers_overflow_to_infinity_where_the_chip_can() {
    survives("numbers_overflow_to_infinity", &[]);
    for settings in [
        ("SIMULATED_ASCEND_HIDE", "aclrtSetDeviceSatMode"),
        (FAULT, "aclrtSetDeviceSatMode=1:207000"),
    ] {
        survives("a_chip_keeps_its_way_to_overflow", &[settings]);
    }
}

#[test]
fn captures_that_cannot_be_are_named() {
    let hidden = [("SIMULATED_ASCEND_HIDE", "aclmdlRICaptureBegin")];
    survives("what_captures_need_is_named", &hidden);
    let fault = [(FAULT, "aclmdlRICaptureBegin=1:207000")];
    survives("a_chip_without_graphs_says_so", &fault);
    let few = [("SIMULATED_ASCEND_STREAMS", "3")];
    survives("a_graph_that_takes_too_many_streams_is_an_error", &few);
}

#[test]
fn everything_passes_with_todays_cann() {
    everything_passes(&[]);
}

#[test]
fn everything_passes_with_the_oldest_cann() {
    everything_passes(&[("SIMULATED_ASCEND_VERSION", "8.1")]);
}

#[test]
fn everything_passes_when_the_chip_is_late() {
    everything_passes(&[("SIMULATED_ASCEND_DELAY_US", "300")]);
}

#[test]
fn everything_passes_without_a_way_between_devices() {
    everything_passes(&[("SIMULATED_ASCEND_PEERS", "0")]);
}

#[test]
fn everything_passes_with_one_visible_device() {
    everything_passes(&[("ASCEND_RT_VISIBLE_DEVICES", "1")]);
}

#[test]
fn a_function_that_is_missing_is_named() {
    let Some(library) = runtime() else {
        return crate::say("skipped: no simulated runtime, or no g++ to compile it with");
    };
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_suite_passes", "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env("LD_LIBRARY_PATH", library.parent().expect("in a folder"))
        .env("SIMULATED_ASCEND_HIDE", "aclrtStreamQuery,aclrtMallocHost")
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = "skipped: probe: libascendcl.so has no aclrtMallocHost, aclrtStreamQuery, and its ACL is 1.";
    assert!(errors.contains(said), "{errors}");
}
