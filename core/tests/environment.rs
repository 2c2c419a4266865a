//! `docs/environment.md` is generated from the variables of the core and of every vendor that is linked into the module.

#![cfg(not(loom))]

use std::path::Path;

use flagos_cuda as _;

/// The variable that rewrites the checked-in text. Only this test reads it.
const BLESS: &str = "BLESS";

#[test]
fn the_checked_in_documentation_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/environment.md");
    let generated = flagos_core::env::markdown();
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, &generated).expect("docs/environment.md is writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("docs/environment.md exists");
    assert_eq!(
        checked_in, generated,
        "run {BLESS}=1 cargo test -p flagos-core --test environment"
    );
}
