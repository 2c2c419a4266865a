//! Vendors that manifests tell of: found without being loaded, tried in a process of their own, chosen, or refused with
//! the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flagos_core::ErrorKind;
use flagos_core::vendors::{self, Settings, VendorReport};
use tempfile::TempDir;

use crate::compiled::{compiled, compiled_with, example};

const PROBE: &str = "static int32_t probe(int32_t* device_count) {";

/// A folder with manifests and libraries.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A folder with the example chip and its manifest.
    fn of_example() -> Self {
        let folder = Self::new();
        folder.copy(
            Path::new(flagos_example_chip::LIBRARY),
            "libflagos_example.so",
        );
        folder.copy(&example().join("example.toml"), "example.toml");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self, from: &Path, name: &str) {
        fs::copy(from, self.path(name)).expect("own folder");
    }

    /// Writes the manifest of the vendor `name`, with these lines beside the required ones.
    fn manifest(&self, name: &str, library: &str, lines: &str) {
        let text = format!("name = '{name}'\nlibrary = '{library}'\ninterface = '1.0'\n{lines}");
        fs::write(self.path(&format!("{name}.toml")), text).expect("own folder");
    }

    /// The example chip with this code at the beginning of its probe, and behind its other code.
    fn chip(&self, name: &str, in_probe: &str, behind: &str) -> String {
        let source = fs::read_to_string(example().join("chip.c")).expect("the example");
        assert!(source.contains(PROBE));
        let source = source.replace(
            PROBE,
            &format!("#include <signal.h>\n#include <fcntl.h>\n{PROBE}{in_probe}"),
        );
        compiled_with(
            self.0.path(),
            name,
            &format!("{source}\n{behind}"),
            &["kernels.c"],
        );
        format!("lib{name}.so")
    }

    fn settings(&self) -> Settings {
        Settings {
            vendor_path: vec![self.0.path().to_owned()],
            ..Settings::default()
        }
    }

    fn report(&self, asked: Option<&str>, name: &str) -> VendorReport {
        let reports = vendors::report(asked, &self.settings()).expect("the folder is there");
        let found = reports.into_iter().find(|report| report.name == name);
        found.unwrap_or_else(|| panic!("{name} is not reported"))
    }

    /// The reason why the vendor `name` cannot be used, which its report and its selection give alike.
    fn refusal(&self, name: &str) -> String {
        let error = vendors::select(Some(name), &self.settings()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        let report = self.report(None, name);
        assert_eq!((report.devices, report.chosen), (Some(0), false));
        assert!(
            error.message().contains(&report.reason),
            "{error}\n{report:?}"
        );
        report.reason
    }
}

/// Whether a file is loaded into this process.
fn is_loaded(path: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    maps.contains(path.to_str().expect("UTF-8"))
}

#[test]
fn the_example_chip_is_found_by_its_manifest() {
    let folder = Folder::of_example();
    let library = folder.path("libflagos_example.so");
    let before = folder.report(None, "example");
    assert_eq!((before.devices, before.chosen), (None, false));
    assert!(
        before
            .reason
            .contains("only when FLAGOS_VENDOR=example asks"),
        "{before:?}"
    );
    assert_eq!(
        before.source,
        folder.path("example.toml").display().to_string()
    );
    let asked = folder.report(Some("chip"), "example");
    assert!(
        asked.chosen && asked.reason.contains("tried at the first use"),
        "{asked:?}"
    );

    for name in ["example", "chip"] {
        let entry = vendors::select(Some(name), &folder.settings()).expect("it can be used");
        assert_eq!(entry.name(), "example");
    }
    let after = folder.report(Some("example"), "example");
    assert_eq!((after.devices, after.chosen), (Some(2), true));
    assert!(!is_loaded(&library), "it was loaded in another process");

    let entry = vendors::select(Some("example"), &folder.settings()).expect("it can be used");
    assert_eq!(entry.description().expect("loaded").aliases, ["chip"]);
    assert!(is_loaded(&library));
    // SAFETY: looks a name up, and does not use it.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"flagos_vendor".as_ptr()) };
    assert!(global.is_null(), "its names are its own");
    let vendor = entry
        .open(&folder.settings(), Box::leak(Box::default()))
        .expect("it opens");
    assert_eq!((vendor.name(), vendor.device_count()), ("example", 2));
}

#[test]
fn a_report_runs_no_code_of_a_library() {
    let folder = Folder::new();
    let mark = folder.path("mark");
    let behind = format!(
        "__attribute__((constructor)) static void here(void) {{ close(open(\"{}\", O_CREAT | O_WRONLY, 0600)); }}",
        mark.display()
    );
    let library = folder.chip("example", "", &format!("#include <unistd.h>\n{behind}"));
    folder.manifest("example", &library, "aliases = ['chip']");
    for asked in [None, Some("example"), Some("host")] {
        folder.report(asked, "example");
        assert!(!mark.exists());
    }
    vendors::select(Some("host"), &folder.settings()).expect("host");
    vendors::select(None, &folder.settings()).expect("some vendor");
    assert!(!mark.exists(), "nothing asks for it");
    vendors::select(Some("example"), &folder.settings()).expect("it can be used");
    assert!(mark.exists());
}

#[test]
fn device_files_make_a_vendor_a_candidate() {
    let folder = Folder::of_example();
    let lines = format!(
        "aliases = ['chip']\nrank = 900\ndevice_files = ['{}']",
        folder.path("device[0-9]").display()
    );
    folder.manifest("example", "libflagos_example.so", &lines);
    let chosen = || {
        vendors::select(None, &folder.settings())
            .expect("some vendor")
            .name()
    };
    assert_ne!(chosen(), "example");
    let absent = folder.report(None, "example");
    assert!(
        absent.reason.starts_with("this machine has no ") && absent.devices.is_none(),
        "{absent:?}"
    );

    fs::write(folder.path("device0"), "").expect("own folder");
    let present = folder.report(None, "example");
    assert!(
        present.reason.starts_with("there may be a device"),
        "{present:?}"
    );
    let host = folder.report(None, "host");
    assert_eq!(
        (host.chosen, host.reason.as_str()),
        (false, "example is tried first")
    );
    assert_eq!(chosen(), "example");
    assert!(folder.report(None, "example").chosen);
}

#[test]
fn a_library_that_crashes_in_its_probe_is_skipped_and_told() {
    let folder = Folder::new();
    let library = folder.chip("crashing", "raise(SIGSEGV);", "");
    let lines = format!(
        "aliases = ['chip']\nrank = 900\ndevice_files = ['{}']",
        folder.path("example.toml").display()
    );
    folder.manifest("example", &library, &lines);
    let chosen = vendors::select(None, &folder.settings()).expect("another vendor");
    assert_ne!(chosen.name(), "example");
    assert_eq!(folder.refusal("example"), "ended by SIGSEGV in its probe");
}

#[test]
fn the_reason_of_a_probe_is_told() {
    let folder = Folder::new();
    let probe = "return chip_fail(FLAGOS_VENDOR_DEVICE, \"the driver\\nis too old\");";
    let library = folder.chip("old", probe, "");
    folder.manifest("example", &library, "aliases = ['chip']");
    let reason = folder.refusal("example");
    assert!(reason.contains("probe: the driver is too old"), "{reason}");
}

#[test]
fn a_library_has_to_tell_what_its_manifest_tells() {
    let folder = Folder::of_example();
    folder.manifest("other", "libflagos_example.so", "aliases = ['chip']");
    let name = folder.refusal("other");
    assert!(
        name.contains("`name` is `other` in the manifest and `example` in the library's"),
        "{name}"
    );
    folder.manifest("example", "libflagos_example.so", "aliases = ['sample']");
    let aliases = folder.refusal("example");
    assert!(
        aliases.contains("`aliases` is [\"sample\"] in the manifest and [\"chip\"] in"),
        "{aliases}"
    );
}

#[test]
fn what_can_be_told_without_loading_is_told_so() {
    let folder = Folder::of_example();
    folder.manifest("absent", "libabsent.so", "");
    let absent = folder.refusal("absent");
    assert!(
        absent.contains("/libabsent.so cannot be used: No such file"),
        "{absent}"
    );

    let newer = "name = 'newer'\nlibrary = 'libflagos_example.so'\ninterface = '2.0'";
    fs::write(folder.path("newer.toml"), newer).expect("own folder");
    let newer = folder.refusal("newer");
    assert!(
        newer.contains("version 2.0 of flagos_vendor.h, and this flagos takes 1.x"),
        "{newer}"
    );

    let mut other = fs::read(folder.path("libflagos_example.so")).expect("a copy");
    other[18..20].copy_from_slice(
        &if cfg!(target_arch = "aarch64") {
            62_u16
        } else {
            183
        }
        .to_ne_bytes(),
    );
    fs::write(folder.path("libother.so"), other).expect("own folder");
    folder.manifest("arm", "libother.so", "");
    let arm = folder.refusal("arm");
    assert!(
        arm.contains("it is for ") && arm.contains(", and this process is "),
        "{arm}"
    );

    fs::write(folder.path("wrong.toml"), "nme = 'wrong'").expect("own folder");
    assert!(
        folder
            .refusal("wrong")
            .contains("line 1: unknown field `nme`")
    );
}

#[test]
fn a_library_without_the_function_is_refused() {
    let folder = Folder::new();
    compiled(folder.0.path(), "other", "int something_else;");
    folder.manifest("example", "libother.so", "");
    let reason = folder.refusal("example");
    assert!(
        reason.contains("it exports no function `flagos_vendor`"),
        "{reason}"
    );
}

#[test]
fn what_every_user_may_write_is_not_loaded() {
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    };
    let folder = Folder::of_example();
    allow(&folder.path("libflagos_example.so"), 0o777);
    let library = folder.refusal("example");
    assert!(
        library.ends_with("libflagos_example.so cannot be used: every user may write to it"),
        "{library}"
    );
    allow(&folder.path("libflagos_example.so"), 0o755);
    allow(&folder.path("example.toml"), 0o666);
    let manifest = folder.refusal("example");
    assert_eq!(
        manifest,
        "its manifest cannot be used: every user may write to it"
    );
    allow(&folder.path("example.toml"), 0o644);
    allow(folder.0.path(), 0o777);
    let within = folder.refusal("example");
    assert!(
        within.contains("every user may write to the folder"),
        "{within}"
    );
    allow(folder.0.path(), 0o700);
    vendors::select(Some("example"), &folder.settings()).expect("it can be used");
}

#[test]
fn a_name_of_two_manifests_is_an_error_that_names_both() {
    let (first, second) = (Folder::of_example(), Folder::of_example());
    let path = |folder: &Folder| folder.0.path().to_owned();
    let mut settings = Settings {
        vendor_path: vec![path(&first), path(&second), path(&first)],
        ..Settings::default()
    };
    let error = vendors::select(Some("example"), &settings)
        .expect_err("refused")
        .to_string();
    for folder in [&first, &second] {
        let file = folder.path("example.toml").display().to_string();
        assert!(error.contains(&file), "{error}");
    }
    // One file, found twice and by a link, is one manifest.
    let link = second.path("link");
    std::os::unix::fs::symlink(first.0.path(), &link).expect("own folder");
    settings.vendor_path = vec![path(&first), first.path("example.toml"), link];
    vendors::select(Some("example"), &settings).expect("it can be used");
}

#[test]
fn a_path_that_does_not_exist_is_an_error() {
    let folder = Folder::new();
    let settings = Settings {
        vendor_path: vec![folder.path("absent")],
        ..Settings::default()
    };
    let error = vendors::select(None, &settings).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("absent does not exist"),
        "{error}"
    );
}
