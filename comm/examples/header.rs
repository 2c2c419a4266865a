//! Writes `include/flagos_comm.h` from the types of the C table: `cargo run -p flagos-comm --example header`.

use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, Style};

/// The path of the checked-in header.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("include")
        .join("flagos_comm.h")
}

/// The text of the header.
pub fn generate() -> String {
    let export = [
        "FlagosCommApi",
        "FlagosCommSide",
        "Kind",
        "DType",
        "ReduceOp",
    ];
    // The enumerations that Rust and C share, by their names in C.
    let rename = [
        ("Kind", "FlagosCommKind"),
        ("DType", "FlagosCommDType"),
        ("ReduceOp", "FlagosCommReduce"),
    ];
    let config = Config {
        language: Language::C,
        style: Style::Both,
        documentation_style: DocumentationStyle::Doxy,
        cpp_compat: true,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        header: Some(HEADER.into()),
        include_guard: Some("FLAGOS_COMM_H".into()),
        enumeration: EnumConfig {
            prefix_with_name: true,
            ..EnumConfig::default()
        },
        export: ExportConfig {
            include: export.map(str::to_owned).to_vec(),
            rename: rename
                .map(|(rust, c)| (rust.to_owned(), c.to_owned()))
                .into(),
            ..ExportConfig::default()
        },
        ..Config::default()
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let bindings = ["abi/types.rs", "collective.rs", "dtype.rs", "reduce.rs"]
        .iter()
        .fold(Builder::new().with_config(config), |builder, file| {
            builder.with_src(sources.join(file))
        })
        .generate();
    let mut text = Vec::new();
    bindings
        .expect("the table can be described in C")
        .write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

const HEADER: &str = "\
/* The C table of collectives, for C and C++.
 * SPDX-License-Identifier: Apache-2.0
 * Generated from comm/src by `cargo run -p flagos-comm --example header`: do not edit. */";

#[allow(
    dead_code,
    reason = "the test of the header includes this file and only compares"
)]
fn main() {
    std::fs::create_dir_all(path().parent().expect("a folder")).expect("include/ is writable");
    std::fs::write(path(), generate()).expect("include/flagos_comm.h is writable");
}
