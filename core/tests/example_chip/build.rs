//! Compiles the example chip twice: into an archive that is linked in, and into a library.

use std::path::Path;

fn main() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = ["chip.c", "kernels.c"].map(|file| core.join("examples/vendor").join(file));
    for folder in ["examples/vendor", "include"] {
        println!("cargo:rerun-if-changed={}", core.join(folder).display());
    }
    let mut build = cc::Build::new();
    build
        .std("c11")
        .define("_GNU_SOURCE", None)
        .flags(["-pthread", "-fvisibility=hidden"])
        .extra_warnings(true)
        .warnings_into_errors(true)
        .include(core.join("include"))
        .files(&sources);
    build.compile("flagos_example_chip");
    println!("cargo:rustc-link-lib=m");

    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let library = Path::new(&out).join("libflagos_example.so");
    let status = build
        .get_compiler()
        .to_command()
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args(&sources)
        .arg("-lm")
        .status();
    assert!(status.expect("the compiler runs").success());
    println!("cargo:rustc-env=FLAGOS_EXAMPLE_CHIP={}", library.display());
}
