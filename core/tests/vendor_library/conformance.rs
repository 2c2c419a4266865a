//! The suite over vendors behind a table.

use std::time::Duration;

use flagos_core::vendors::host;
use flagos_vendor_kit::conformance::failures;

use crate::broken::{FLAWS, Flaw, outcome};
use crate::exported;
use crate::forms::{exported_host, linked, loaded, opened};

#[test]
fn the_example_chip_conforms() {
    for (form, library) in [("linked in", linked()), ("loaded", loaded())] {
        let failed = failures(&*opened(library), Duration::from_millis(30));
        assert!(failed.is_empty(), "{form}: {failed:#?}");
    }
}

#[test]
fn the_host_conforms_as_a_library() {
    let library = exported_host();
    assert_eq!(library.description(), (host::ENTRY.description)());
    let failed = failures(&*opened(library), Duration::from_millis(30));
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_vendor_behind_a_table_conforms() {
    let failed = failures(&*exported::open(Flaw::None), Duration::from_millis(30));
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_flaw_is_noticed_behind_a_table() {
    for (flaw, check) in FLAWS {
        let found = outcome(check, &*exported::open(flaw));
        // Without the capability HOST_COMPUTES the library gets no count.
        let possible = flaw != Flaw::PendingIsIdle;
        assert_eq!(
            found.is_err(),
            possible,
            "`{check}` over {flaw:?}: {found:?}"
        );
    }
}
