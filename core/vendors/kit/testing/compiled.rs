//! Simulated libraries, compiled once for all tests of all programs.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo has programs keep files; a folder of its own on a machine that the program was carried to.
fn folder() -> PathBuf {
    let cargos = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if cargos.exists() {
        return cargos.to_owned();
    }
    tempfile::tempdir().expect("a folder").keep()
}

const FLAGS: &str =
    "-std=c++17 -O1 -fPIC -fvisibility=hidden -shared -pthread -Wall -Wextra -Werror";

/// The folder of the machine beneath simulated libraries.
const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kit/simulated");

/// The simulated library `name` that g++ makes of one C++ source; None without g++, or without the source, as on a machine
/// that the program was carried to.
///
/// It is compiled again when a file beside the source or of the machine differs. Whoever comes second waits for it.
pub fn simulated(name: &str, source: &Path) -> Option<PathBuf> {
    if !source.exists() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    (name, FLAGS, source).hash(&mut hasher);
    let beside = source.parent().expect("in a folder");
    for file in [beside, Path::new(MACHINE)].into_iter().flat_map(files) {
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
        compile(&new, source)?;
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

fn compile(to: &Path, source: &Path) -> Option<()> {
    let done = Command::new("g++")
        .args(FLAGS.split(' '))
        .arg(source)
        .arg("-o")
        .arg(to)
        .status();
    let status = match done {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        done => done.expect("g++ runs"),
    };
    assert!(status.success(), "the simulated library does not compile");
    Some(())
}
