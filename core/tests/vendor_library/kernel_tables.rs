//! Tables of kernels with random sizes, versions and NULLs: taken or refused as a model says, and never read beyond their
//! own size.

use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::mem::size_of;
use std::ptr::null;

use flagos_core::ErrorKind;
use flagos_core::vendors::library::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::exported;
use crate::guarded::Guarded;

thread_local! {
    static VENDOR: Cell<*const FlagosVendor> = const { Cell::new(null()) };
    static GIVEN: Cell<*const FlagosKernels> = const { Cell::new(null()) };
    static REASON: Cell<*const c_char> = const { Cell::new(null()) };
}

unsafe extern "C" fn vendor_entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    VENDOR.get()
}

unsafe extern "C" fn entry(
    host: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosKernels {
    // SAFETY: the host's struct and a valid output.
    unsafe {
        assert_eq!((*host).newest_major, FLAGOS_KERNELS_MAJOR);
        assert_eq!((*host).newest_minor, FLAGOS_KERNELS_MINOR);
        reason.write(REASON.get());
    }
    GIVEN.get()
}

/// The outcome of taking a vendor with this entry function of kernels.
fn adopt_entry(entry: FlagosKernelsEntry, serving: i32) -> Result<&'static Library, String> {
    let mut description = exported::description();
    description.serving = serving;
    description.torch_device_type = c"cuda".as_ptr();
    let mut table = exported::table(true);
    table.description = &description;
    VENDOR.set(&table);
    // SAFETY: what the tables say of their sizes is true, see `Guarded`.
    let outcome = unsafe { Library::adopt("random", Some(vendor_entry), entry) };
    outcome.map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.context("at"), Some("random"));
        error.to_string()
    })
}

/// The outcome of taking these kernels.
fn adopt(kernels: *const FlagosKernels) -> Result<&'static Library, String> {
    GIVEN.set(kernels);
    adopt_entry(Some(entry), FLAGOS_VENDOR_SERVED_BY_LIBRARY)
}

const SIZE: usize = size_of::<FlagosKernels>();

#[test]
fn only_a_vendor_served_by_its_library_needs_kernels() {
    let error = adopt_entry(None, FLAGOS_VENDOR_SERVED_BY_LIBRARY).expect_err("refused");
    assert!(
        error.contains("there is no function `flagos_kernels`"),
        "{error}"
    );
    for serving in [FLAGOS_VENDOR_SERVED_BY_HOST, FLAGOS_VENDOR_SERVED_BY_TORCH] {
        let library = adopt_entry(None, serving).expect("taken");
        assert!(library.kernels().is_none());
        assert_eq!(library.kernel(c"aten::mm").expect("an answer"), None);
    }
}

#[test]
fn kernels_may_be_declined() {
    for (reason, says) in [
        (c"needs driver 7".as_ptr(), "needs driver 7"),
        (null(), "no reason was given"),
    ] {
        REASON.set(reason);
        let error = adopt(null()).expect_err("refused");
        let says = format!("flagos_kernels declines: {says}");
        assert!(error.contains(&says), "{error}");
    }
    let table = Guarded::new(&exported::kernels(), SIZE);
    let error = adopt(table.address().wrapping_byte_add(4)).expect_err("refused");
    assert!(
        error.contains("the table of kernels is at the unaligned address"),
        "{error}"
    );
}

#[test]
fn every_smaller_size_is_refused() {
    let whole = exported::kernels();
    for size in 0..SIZE {
        let error = adopt(Guarded::new(&whole, size).address()).expect_err("refused");
        let says = format!("the table of kernels has a struct_size of {size} bytes");
        assert!(error.contains(&says), "{error}");
    }
}

#[test]
fn all_missing_functions_are_named() {
    let mut table = exported::kernels();
    (table.last_error, table.run) = (None, None);
    let error = adopt(&table).expect_err("refused");
    let says = "last_error, run are missing in the table of kernels";
    assert!(error.contains(says), "{error}");
}

#[test]
fn names_are_operators() {
    let good = [c"aten::add.Tensor".as_ptr(), c"te::f".as_ptr(), null()];
    let mut table = exported::kernels();
    table.names = good.as_ptr();
    let library = adopt(&table).expect("taken");
    let kernels = library.kernels().expect("kernels");
    assert_eq!(kernels.names(), ["aten::add.Tensor", "te::f"]);
    let bad = [good[0], c"add.Tensor".as_ptr(), null()];
    table.names = bad.as_ptr();
    let error = adopt(&table).expect_err("refused");
    assert!(error.contains("names[1] is `add.Tensor`"), "{error}");
}

/// Others read the host's copy, so its size is that of the copy.
#[test]
fn a_longer_table_of_a_newer_version_is_taken() {
    #[repr(C)]
    struct Newer {
        table: FlagosKernels,
        appended: [usize; 4],
    }
    let mut newer = Newer {
        table: exported::kernels(),
        appended: [usize::MAX; 4],
    };
    newer.table.struct_size = size_of::<Newer>();
    newer.table.minor = 9;
    newer.table.reserved[3] = std::ptr::dangling();
    assert_eq!(newer.appended, [usize::MAX; 4]);
    let library = adopt(&newer.table).expect("taken");
    let kernels = library.kernels().expect("kernels");
    assert_eq!(kernels.version(), (FLAGOS_KERNELS_MAJOR, 9));
    assert_eq!(kernels.table().struct_size, SIZE);
    assert_eq!(library.kernel(c"aten::mm").expect("an answer"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tables_are_taken_as_the_model_says(
        size in prop_oneof![3 => Just(SIZE), 1 => 0..SIZE],
        major in prop_oneof![6 => Just(FLAGOS_KERNELS_MAJOR), 1 => any::<u32>()],
        minor in prop_oneof![3 => Just(FLAGOS_KERNELS_MINOR), 1 => any::<u32>()],
        absent in prop_oneof![3 => Just(vec![]), 1 => vec(0..3_usize, 1..3)],
        reserved in prop_oneof![4 => Just(None), 1 => (0_usize..15).prop_map(Some)],
        flags in prop_oneof![3 => Just(0), 1 => Just(FLAGOS_KERNELS_POST), 1 => any::<u64>()],
        names in vec("[a-z]{0,2}(::)?[a-z]{0,3}", 0..4),
    ) {
        let texts: Vec<_> = names.iter().map(|name| CString::new(&**name).expect("no NUL")).collect();
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(null());
        let mut table = exported::kernels();
        (table.major, table.minor, table.names) = (major, minor, list.as_ptr());
        table.flags = flags;
        if let Some(slot) = reserved {
            table.reserved[slot] = std::ptr::dangling();
        }
        for slot in &absent {
            match slot {
                0 => table.last_error = None,
                1 => table.find = None,
                _ => table.run = None,
            }
        }
        let given = Guarded::new(&table, size);

        let newer = minor > FLAGOS_KERNELS_MINOR;
        let is_name = |name: &String| {
            name.split_once("::").is_some_and(|(before, after)| !before.is_empty() && !after.is_empty())
        };
        let fits = size == SIZE
            && major == FLAGOS_KERNELS_MAJOR
            && (newer || reserved.is_none())
            && (newer || flags & !FLAGOS_KERNELS_POST == 0)
            && absent.is_empty()
            && names.iter().all(is_name);
        match adopt(given.address()) {
            Ok(library) => {
                prop_assert!(fits);
                let kernels = library.kernels().expect("kernels");
                prop_assert_eq!(kernels.version(), (major, minor));
                prop_assert_eq!(kernels.names(), names);
            }
            Err(error) => prop_assert!(!fits, "{}", error),
        }
    }

    #[test]
    fn answers_of_find_are_checked(code in prop_oneof![any::<i32>(), -1..12_i32], found in any::<bool>()) {
        thread_local! {
            static ANSWER: Cell<(i32, bool)> = const { Cell::new((0, false)) };
        }
        unsafe extern "C" fn find(_: *const c_char, kernel: *mut *const FlagosKernel) -> i32 {
            let (code, found) = ANSWER.get();
            if found {
                // SAFETY: a valid output.
                unsafe { kernel.write(std::ptr::dangling()) };
            }
            code
        }
        ANSWER.set((code, found));
        let mut table = exported::kernels();
        table.find = Some(find);
        let outcome = adopt(&table).expect("taken").kernel(c"aten::mm");
        match code {
            FLAGOS_VENDOR_OK if found => prop_assert!(outcome.expect("found").is_some()),
            FLAGOS_VENDOR_UNSUPPORTED => prop_assert!(outcome.expect("an answer").is_none()),
            _ => {
                let error = outcome.expect_err("no answer");
                prop_assert_eq!(error.context("operator"), Some("aten::mm"));
                prop_assert_eq!(error.context("vendor"), Some("exported"));
            }
        }
    }
}
