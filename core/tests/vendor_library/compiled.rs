//! Libraries compiled by a test, as a user would compile them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the example chip.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/vendor")
}

/// A library of this C source, in `folder`.
pub fn compiled(folder: &Path, name: &str, source: &str) -> PathBuf {
    compiled_with(folder, name, source, &[])
}

/// A library of this C source and of these files of the example chip, in `folder`.
pub fn compiled_with(folder: &Path, name: &str, source: &str, others: &[&str]) -> PathBuf {
    let (file, library) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("lib{name}.so")),
    );
    std::fs::write(&file, source).expect("the folder is writable");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let status = Command::new("cc")
        .args(["-std=c11", "-shared", "-fPIC", "-I"])
        .arg(headers)
        .arg("-I")
        .arg(example())
        .args(["-D_GNU_SOURCE", "-o"])
        .args([&library, &file])
        .args(others.iter().map(|other| example().join(other)))
        .arg("-lm")
        .status();
    assert!(status.expect("cc runs").success());
    library
}
