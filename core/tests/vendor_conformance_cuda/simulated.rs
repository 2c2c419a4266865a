//! Every test of this program over a simulated driver, for machines that have none.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The parts of the driver as one source, because each part uses those before it.
const SOURCE: &str = concat!(
    include_str!("simulated/state.cc"),
    include_str!("simulated/devices.cc"),
    include_str!("simulated/streams.cc"),
    include_str!("simulated/ptx.cc"),
    include_str!("simulated/kernels.cc"),
    include_str!("simulated/nvml.cc"),
);

/// Compiles the driver; false without a compiler, as on a machine that this program was carried to.
fn compile(to: &Path) -> bool {
    let arguments = "-x c++ -std=c++17 -O1 -Wall -Wextra -Werror -fPIC -shared -pthread -o";
    let child = Command::new("g++")
        .args(arguments.split(' '))
        .args([to.as_os_str(), "-".as_ref()])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return false };
    let mut input = child.stdin.take().expect("piped");
    input.write_all(SOURCE.as_bytes()).expect("g++ reads");
    drop(input);
    assert!(child.wait().expect("g++ ends").success());
    true
}

#[test]
fn everything_passes_over_a_simulated_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = folder.path().join("libcuda.so.1");
    if !compile(&driver) {
        return crate::say("skipped: no g++ to compile the simulated driver with");
    }
    std::fs::copy(&driver, folder.path().join("libnvidia-ml.so.1")).expect("copied");
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
