//! Compiles the C++ shim against the torch that the build's Python imports.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The facts about the installed torch that the build needs.
struct Torch {
    version: String,
    root: PathBuf,
}

fn torch() -> Torch {
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");
    println!("cargo:rerun-if-env-changed=VIRTUAL_ENV");
    let python = env::var("PYO3_PYTHON")
        .or_else(|_| env::var("VIRTUAL_ENV").map(|root| format!("{root}/bin/python")))
        .unwrap_or_else(|_| "python3".into());
    // torch is found without an import, which would load this very extension if it is installed.
    let script = "import importlib.util as u, importlib.metadata as m, os;\
        print(m.version('torch')); print(os.path.dirname(u.find_spec('torch').origin))";
    let output = Command::new(&python)
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .args(["-c", script])
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run {python}: {error}; set PYO3_PYTHON to a Python that has torch 2.11")
        });
    assert!(
        output.status.success(),
        "{python} has no torch; `pip install torch==2.11.0` first: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().to_owned();
    assert!(
        version.starts_with("2.11."),
        "torch-fl builds against torch 2.11, {python} has {version}"
    );
    Torch {
        version,
        root: PathBuf::from(lines.next().unwrap_or_default()),
    }
}

/// The headers that most of the shim's files include. Precompiling them halves the time of the build.
const HEADERS: &str = "#include <ATen/core/Tensor.h>\n\
                       #include <ATen/core/dispatch/Dispatcher.h>\n\
                       #include <torch/library.h>\n";

/// Precompiles [`HEADERS`] where the compiler is GCC itself. Under ccache they are not precompiled, because ccache
/// then finds nothing that it kept.
fn precompile(shim: &mut cc::Build) {
    let compiler = shim.get_compiler();
    let mut command = compiler.to_command();
    if !compiler.is_like_gnu() || command.get_program().to_string_lossy().contains("ccache") {
        return;
    }
    let header = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("torch.h");
    fs::write(&header, HEADERS).expect("OUT_DIR can be written");
    let compiled = header.with_extension("h.gch");
    let made = command
        .args(["-x", "c++-header"])
        .arg(&header)
        .arg("-o")
        .arg(&compiled)
        .status();
    if made.is_ok_and(|status| status.success()) {
        shim.flag("-include").flag(&header);
    }
}

/// Adds the C++ files of a folder and of its subfolders.
fn find_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("csrc is part of the package") {
        let path = entry.expect("csrc can be listed").path();
        if path.is_dir() {
            find_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "cc") {
            sources.push(path);
        }
    }
}

fn main() {
    let torch = torch();
    println!("cargo:rustc-env=TORCH_FL_BUILT_FOR={}", torch.version);
    println!("cargo:rerun-if-env-changed=TORCH_FL_CHECK_ONLY");
    if env::var_os("TORCH_FL_CHECK_ONLY").is_some() {
        return; // clippy checks the Rust code alone, and the C++ code takes minutes
    }
    let mut sources = Vec::new();
    find_sources(Path::new("csrc"), &mut sources);
    sources.sort();
    println!("cargo:rerun-if-changed=csrc");
    println!("cargo:rerun-if-changed=../../core/include/flagos.h");
    println!("cargo:rerun-if-changed=../../comm/include/flagos_comm.h");

    let mut shim = cc::Build::new();
    shim.cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-fvisibility=hidden")
        .flag("-fvisibility-inlines-hidden")
        .flag("-fno-plt")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-unused-parameter") // torch's headers have unused parameters
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .include("csrc")
        .include("../../core/include")
        .include("../../comm/include")
        .define("USE_DISTRIBUTED", None)
        // torch itself is built with NDEBUG; without it torch's headers check every tensor and every device.
        .define("NDEBUG", None)
        .flag("-isystem")
        .flag(
            torch
                .root
                .join("include")
                .to_str()
                .expect("torch's path is UTF-8"),
        )
        .flag("-isystem")
        .flag(
            torch
                .root
                .join("include/torch/csrc/api/include")
                .to_str()
                .expect("torch's path is UTF-8"),
        )
        .files(&sources);
    precompile(&mut shim);
    shim.compile("torch_fl_shim");

    // torch is imported before this module is opened, so its libraries are found by their sonames.
    println!(
        "cargo:rustc-link-search=native={}",
        torch.root.join("lib").display()
    );
    println!("cargo:rustc-link-lib=dylib=torch_cpu");
    println!("cargo:rustc-link-lib=dylib=c10");
}
