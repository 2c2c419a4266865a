//! Simulated libraries, compiled once for all tests of all programs.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where cargo has programs keep files; a folder of its own on a machine that the program was carried to.
fn folder() -> PathBuf {
    let cargos = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if cargos.exists() {
        return cargos.to_owned();
    }
    tempfile::tempdir().expect("a folder").keep()
}

/// The library `name` that g++ makes of a C++ source with these flags; None without g++.
///
/// It is compiled again when the source, the flags or a file in `within` differs. Whoever comes second waits for it.
pub fn library(name: &str, flags: &str, source: &str, within: Option<&Path>) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (name, flags, source).hash(&mut hasher);
    for file in within.map(files).unwrap_or_default() {
        fs::read(file).expect("a source").hash(&mut hasher);
    }
    let folder = folder().join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).expect("a folder");
    let lock = File::create(folder.join("lock")).expect("a file");
    // SAFETY: an open descriptor, which is unlocked when it is closed.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let made = folder.join(name);
    if !made.exists() {
        let new = folder.join("new");
        compile(&new, flags, source)?;
        fs::rename(new, &made).expect("renamed");
    }
    Some(made)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|kind| kind == "cc" || kind == "h")
        })
        .collect();
    files.sort();
    files
}

fn compile(to: &Path, flags: &str, source: &str) -> Option<()> {
    let child = Command::new("g++")
        .args(flags.split(' '))
        .args("-std=c++17 -fPIC -shared -pthread -x c++ - -o".split(' '))
        .arg(to)
        .stdin(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.expect("g++ starts"),
    };
    let mut input = child.stdin.take().expect("piped");
    input.write_all(source.as_bytes()).expect("g++ reads");
    drop(input);
    let status = child.wait().expect("g++ ends");
    assert!(status.success(), "the simulated library does not compile");
    Some(())
}
