//! Every test of this program over a simulated driver, for machines that have none.

use std::path::Path;
use std::process::Command;

use crate::support::compiled;

#[test]
fn everything_passes_over_a_simulated_driver() {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/conformance/simulated/libcuda.cc"
    );
    let Some(driver) = compiled::simulated("libcuda.so.1", Path::new(source)) else {
        return crate::say("skipped: no simulated driver, or no g++ to compile it with");
    };
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::copy(&driver, folder.path().join(name)).expect("copied");
    }
    for visible in [None, Some("1")] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--skip", "simulated::", "--test-threads=1"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("FLAGOS_REQUIRE_CUDA", "1")
            .env_remove("CUDA_VISIBLE_DEVICES");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let passed = output.status.success() && text.contains("30 passed");
        assert!(passed, "{visible:?}:\n{text}\n{errors}");
    }
}
