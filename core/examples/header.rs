//! Writes `include/flagos.h` from the types of the C table: `cargo run -p flagos-core --example header`.

use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, LayoutConfig, Style};

/// The path of the checked-in header.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("include")
        .join("flagos.h")
}

/// The text of the header.
pub fn generate() -> String {
    let config = Config {
        language: Language::C,
        style: Style::Both,
        documentation_style: DocumentationStyle::Doxy,
        cpp_compat: false,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        header: Some(HEADER.into()),
        include_guard: Some("FLAGOS_H".into()),
        after_includes: Some(ALIGNED.into()),
        layout: LayoutConfig {
            aligned_n: Some("FLAGOS_ALIGNED".into()),
            ..LayoutConfig::default()
        },
        export: cbindgen::ExportConfig {
            include: vec!["FlagosApi".into()],
            ..Default::default()
        },
        ..Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi/types.rs");
    let bindings = Builder::new()
        .with_config(config)
        .with_src(source)
        .generate();
    let mut text = Vec::new();
    bindings
        .expect("the table can be described in C")
        .write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

const HEADER: &str = "\
/* The C table of the flagos core, for C and C++.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from core/src/abi/types.rs by `cargo run -p flagos-core --example header`: do not edit. */";

/// The alignment of a type in words that compilers of C11 and C++17 share, whose standards differ here.
const ALIGNED: &str = "
#if defined(_MSC_VER)
#define FLAGOS_ALIGNED(n) __declspec(align(n))
#else
#define FLAGOS_ALIGNED(n) __attribute__((aligned(n)))
#endif";

#[allow(
    dead_code,
    reason = "the test of the header includes this file and only compares"
)]
fn main() {
    std::fs::write(path(), generate()).expect("include/flagos.h is writable");
}
