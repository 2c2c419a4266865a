//! Libraries that cannot be taken: each has an error that names the library and what is wrong.

use std::path::Path;

use flagos_core::ErrorKind;
use flagos_core::vendors::library::Library;

use crate::compiled::{compiled, compiled_with, example};

/// The error of loading `path`.
fn refusal(path: &Path) -> String {
    let error = Library::load(path).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    let at = error.context("at").expect("the path");
    assert_eq!(Path::new(at), path);
    error.to_string()
}

#[test]
fn a_file_that_is_no_vendor_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = refusal(&folder.path().join("libabsent.so"));
    assert!(absent.contains("there is no such file"), "{absent}");

    let text = folder.path().join("libtext.so");
    std::fs::write(&text, "no library").expect("the folder is writable");
    let text = refusal(&text);
    assert!(
        text.contains("it is no shared library") && text.contains("for this machine"),
        "{text}"
    );

    let symbol = "int missing_in_every_library(void); int (*f)(void) = missing_in_every_library;";
    let symbol = refusal(&compiled(folder.path(), "symbol", symbol));
    assert!(symbol.contains("missing_in_every_library"), "{symbol}");

    let other = refusal(&compiled(folder.path(), "other", "int something_else;"));
    assert!(
        other.contains("it exports no function `flagos_vendor`"),
        "{other}"
    );
}

#[test]
fn a_library_may_decline() {
    let folder = tempfile::tempdir().expect("a folder");
    let entry = "#include \"flagos_vendor.h\"
        const FlagosVendor *flagos_vendor(const FlagosVendorHost *host, const char **reason) {";
    let reason = format!("{entry} if (host != 0) *reason = \"needs driver 7\"; return 0; }}");
    let reason = refusal(&compiled(folder.path(), "reason", &reason));
    assert!(reason.contains("it declines: needs driver 7"), "{reason}");

    let silent = format!("{entry} (void)host; (void)reason; return 0; }}");
    let silent = refusal(&compiled(folder.path(), "silent", &silent));
    assert!(
        silent.contains("it declines: no reason was given"),
        "{silent}"
    );

    let old = format!(
        "{entry} static FlagosVendor table = {{.struct_size = sizeof table, .major = 7, .minor = 3}};
         (void)host; (void)reason; return &table; }}"
    );
    let old = refusal(&compiled(folder.path(), "old", &old));
    assert!(
        old.contains("version 7.3, and this flagos takes 1.x"),
        "{old}"
    );
}

#[test]
fn the_reason_of_a_probe_is_the_vendors() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = std::fs::read_to_string(example().join("chip.c")).expect("the example");
    // Environment variables belong to the process, so this library reads another one.
    let renamed = source.replace("EXAMPLE_CHIP_DEVICES", "PATH");
    let path = compiled_with(folder.path(), "path", &renamed, &["kernels.c"]);
    let library = Library::load(&path).expect("it is taken");
    let error = library.probe().expect_err("PATH is no number");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.context("vendor"), Some("example"));
    assert!(
        error.message().contains("expected a number from 0 to 16"),
        "{error}"
    );
    let opened = flagos_core::vendors::library::open(library, Box::leak(Box::default()));
    assert_eq!(
        opened.err().map(|error| error.kind()),
        Some(ErrorKind::Config)
    );
}
