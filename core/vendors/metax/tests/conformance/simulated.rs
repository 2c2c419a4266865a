//! Every test of this program over a simulated runtime, for machines that have no chip.
//!
//! The simulated library appends a line to its report for everything that a program does and a chip would not take.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::compiled;

/// The runtime; None without its source or a compiler, as on a machine that this program was carried to.
fn runtime() -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/simulated/libmcruntime.cc");
    compiled::simulated("libmcruntime.so", Path::new(source))
}

/// Whether a call that was refused is one that a test makes on purpose.
fn is_on_purpose(line: &str) -> bool {
    line.starts_with("mcModuleLaunchKernel: no function, a shape that no device has")
        || line == "mcEventElapsedTime: an event has no time (refused: 400)"
}

/// Runs this program over the simulated runtime, with arguments and settings. Fails unless so many tests pass, and for
/// everything that the simulated runtime found wrong.
fn passes(arguments: &[&str], settings: &[(&str, &str)], expected: &str) {
    let Some(library) = runtime() else {
        return crate::say("skipped: no simulated runtime, or no g++ to compile it with");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(arguments)
        // Where there is no device file, the vendor takes a library that is loaded already.
        .env("LD_PRELOAD", &library)
        .env("LD_LIBRARY_PATH", library.parent().expect("in a folder"))
        .env("FLAGOS_REQUIRE_METAX", "1")
        .env("SIMULATED_METAX_REPORT", &report)
        .env_remove("MACA_VISIBLE_DEVICES")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.contains(expected);
    assert!(passed, "{arguments:?} {settings:?}:\n{text}\n{errors}");
    let wrong = std::fs::read_to_string(&report).unwrap_or_default();
    let wrong: Vec<&str> = wrong.lines().filter(|line| !is_on_purpose(line)).collect();
    assert_eq!(wrong, [""; 0], "{arguments:?} {settings:?}: misuses");
}

/// Every test of this program passes with these settings of the simulated runtime.
fn everything_passes(settings: &[(&str, &str)]) {
    let arguments = ["--skip", "simulated::", "--test-threads=1"];
    passes(&arguments, settings, "24 passed");
}

#[test]
fn everything_passes_on_two_devices() {
    everything_passes(&[]);
}

#[test]
fn everything_passes_on_one_device_of_several() {
    everything_passes(&[("MACA_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "")]);
}

#[test]
fn everything_passes_late_and_without_peers() {
    everything_passes(&[
        ("SIMULATED_METAX_DELAY_US", "300"),
        ("SIMULATED_METAX_NO_PEERS", "1"),
    ]);
}

/// What `process::inside::says_why_there_is_no_device` prints with these settings.
fn reason(settings: &[(&str, &str)]) {
    let test = "process::inside::no_device_has_a_reason";
    passes(
        &["--exact", test, "--ignored", "--nocapture"],
        settings,
        "1 passed",
    );
}

#[test]
fn hiding_every_device_is_told() {
    let says = "MACA_VISIBLE_DEVICES=`none`";
    reason(&[("MACA_VISIBLE_DEVICES", "none"), ("SAYS", says)]);
    reason(&[
        ("CUDA_VISIBLE_DEVICES", ""),
        ("SAYS", "CUDA_VISIBLE_DEVICES=``"),
    ]);
    reason(&[
        ("SIMULATED_METAX_DEVICES", "0"),
        ("SAYS", "MACA_VISIBLE_DEVICES is not set"),
    ]);
}
