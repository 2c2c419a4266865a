//! What the tests `conformance` of vendors' crates share. Each is about one vendor, names it in a [`Tested`], and uses a
//! part of this.
#![allow(dead_code)]

pub mod compiled;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use flagos_core::Result;
use flagos_core::runtime::{Stream, Vendor};
use flagos_core::vendors::library::{self, Library};
use flagos_core::vendors::{BuiltIn, Description, Settings};
use flagos_vendor_kit::conformance::{CHECKS, Pinned};

/// The vendor that a program is about.
pub enum Tested {
    /// One that is linked into the program.
    Linked(&'static BuiltIn),
    /// A library, which lies beside the program.
    Library {
        name: &'static str,
        /// The text of the manifest that the distribution has.
        manifest: &'static str,
    },
}

/// The vendor, for one test at a time: tests count memory and fill the device.
pub struct Opened {
    pub vendor: Arc<dyn Vendor>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Tested {
    fn name(&self) -> &'static str {
        match self {
            Self::Linked(entry) => &(entry.description)().name,
            Self::Library { name, .. } => name,
        }
    }

    /// The library's file.
    fn file(name: &str) -> PathBuf {
        let program = std::env::current_exe().expect("this program");
        program.with_file_name(format!("libflagos_{name}.so"))
    }

    /// The library.
    pub fn library(&self) -> &'static Library {
        static LIBRARY: OnceLock<&Library> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let library = Library::load(&Self::file(self.name()));
            library.expect("it was built, and carried, with this program")
        })
    }

    pub fn description(&self) -> &'static Description {
        match self {
            Self::Linked(entry) => (entry.description)(),
            Self::Library { .. } => self.library().description(),
        }
    }

    pub fn settings(&self) -> Settings {
        Settings::of_process(self.description())
    }

    /// The number of devices, or why there is none.
    pub fn survey(&self) -> Result<usize, String> {
        match self {
            Self::Linked(entry) => (entry.survey)(&self.settings()),
            Self::Library { .. } => self.library().probe().map_err(|error| error.to_string()),
        }
    }

    /// Opens the vendor, which may be open already.
    pub fn open_again(&self) -> Result<Arc<dyn Vendor>> {
        let pending = Box::leak(Box::default());
        match self {
            Self::Linked(entry) => (entry.open)(&self.settings(), pending),
            Self::Library { .. } => library::open(self.library(), pending),
        }
    }

    /// Writes the manifest into a folder, with the path of the library that lies beside this program.
    fn write_manifest(&self, folder: &Path) {
        let Self::Library { name, manifest } = self else {
            return;
        };
        let file = Self::file(name);
        let library = format!("\"{}\"", file.display());
        let text = manifest.replace(&format!("\"libflagos_{name}.so\""), &library);
        assert!(text.contains(&library), "the manifest names the library");
        std::fs::write(folder.join(format!("{name}.toml")), text).expect("a file");
    }

    /// Whether there is a device. If not, the test is skipped, or fails where `FLAGOS_REQUIRE_<VENDOR>` is 1.
    pub fn there_is_a_device(&self) -> bool {
        let Err(reason) = self.survey() else {
            return true;
        };
        let variable = format!("FLAGOS_REQUIRE_{}", self.name().to_uppercase());
        let required = std::env::var(&variable).is_ok_and(|value| value == "1");
        assert!(!required, "{variable}=1, but {reason}");
        say(&format!("skipped: {reason}"));
        false
    }

    /// The vendor, if there is a device.
    pub fn open(&self) -> Option<Opened> {
        if !self.there_is_a_device() {
            return None;
        }
        let guard = turn();
        let vendor = self.open_again().expect("the runtime can be initialised");
        Some(Opened {
            vendor,
            _one_at_a_time: guard,
        })
    }

    /// Runs the ignored test `process::inside::<name>` in a new process, which no configuration reaches.
    pub fn alone(&self, name: &str) {
        if !self.there_is_a_device() {
            return;
        }
        let _turn = turn();
        let folder = tempfile::tempdir().expect("a folder without flagos.toml");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("FLAGOS_") {
                command.env_remove(variable);
            }
        }
        self.write_manifest(folder.path());
        if matches!(self, Self::Library { .. }) {
            command.env("FLAGOS_VENDOR_PATH", folder.path());
        }
        let output = command
            .args(["--exact", &format!("process::inside::{name}")])
            .args(["--ignored", "--nocapture"])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env("FLAGOS_VENDOR", self.name())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let passed = output.status.success() && text.contains("1 passed");
        assert!(passed, "{name}:\n{text}\n{errors}");
    }
}

/// Whether `work` is true in a forked child.
pub fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `work` and nothing else of this program.
    match unsafe { libc::fork() } {
        0 => {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!good.unwrap_or(false))) }
        }
        child => {
            let mut status = -1;
            // SAFETY: a valid output and a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Prints past the test harness, which would swallow the text.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The turn of one test.
pub fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the suite, naming each check as it runs. Returns what failed.
pub fn failures(of: &str, vendor: &dyn Vendor) -> Vec<String> {
    let run = CHECKS.iter().filter_map(|check| {
        say(&format!("{of}: {}", check.name));
        let finding = check.run(vendor, Duration::from_millis(30)).err()?;
        Some(format!("{}: {finding}", check.name))
    });
    run.collect()
}

/// Device memory that is freed when the device has finished with it.
pub struct Memory<'v> {
    vendor: &'v dyn Vendor,
    /// Where it is.
    pub device: usize,
    address: std::ptr::NonNull<u8>,
    nbytes: usize,
}

impl<'v> Memory<'v> {
    pub fn new(vendor: &'v dyn Vendor, device: usize, nbytes: usize) -> Self {
        let address = vendor.alloc(device, nbytes).expect("memory");
        Self {
            vendor,
            device,
            address,
            nbytes,
        }
    }

    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let quiet = (0..self.vendor.device_count()).all(|d| self.vendor.quiesce(d).is_ok());
        if quiet {
            // SAFETY: from `alloc` with this size, and nothing is queued any more.
            unsafe { self.vendor.free(self.device, self.address, self.nbytes) };
        }
    }
}

pub fn copy(stream: &dyn Stream, dst: *mut u8, src: *const u8, nbytes: usize) {
    // SAFETY: every caller keeps both ranges until the device has finished.
    unsafe { stream.copy(dst, src, nbytes) }.expect("the copy is queued");
}

/// A pattern of the seed.
pub fn fill(bytes: &mut [u8], seed: usize) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = ((index * 31 + seed * 17) % 251) as u8;
    }
}

/// The bytes of pinned memory that no queued copy writes any more.
pub fn bytes<'p>(pinned: &'p mut Pinned<'_>, nbytes: usize) -> &'p mut [u8] {
    // SAFETY: at least this large, borrowed alone, and the copies to it have been waited for.
    unsafe { std::slice::from_raw_parts_mut(pinned.address(), nbytes) }
}

/// Pinned memory filled with a pattern of the seed.
pub fn pattern<'v>(vendor: &'v dyn Vendor, nbytes: usize, seed: usize) -> Pinned<'v> {
    let mut pinned = Pinned::new(vendor, nbytes).expect("pinned memory");
    fill(bytes(&mut pinned, nbytes), seed);
    pinned
}

/// Whether two allocations, which nothing writes any more, hold the same bytes.
pub fn same(a: &Pinned<'_>, b: &Pinned<'_>, nbytes: usize) -> bool {
    // SAFETY: both are at least this large, and the copies to them have been waited for.
    unsafe {
        std::slice::from_raw_parts(a.address(), nbytes)
            == std::slice::from_raw_parts(b.address(), nbytes)
    }
}
