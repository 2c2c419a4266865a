//! Tables and descriptions with random sizes, versions, bits and NULLs: taken or refused as a model says, and never read
//! beyond their own size.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};

use flagos_core::ErrorKind;
use flagos_core::vendors::library::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::exported;
use crate::guarded::Guarded;

thread_local! {
    static GIVEN: Cell<*const FlagosVendor> = const { Cell::new(null()) };
}

unsafe extern "C" fn entry(
    _: *const FlagosVendorHost,
    _: *mut *const c_char,
) -> *const FlagosVendor {
    GIVEN.get()
}

/// The outcome of taking this table.
fn adopt(table: *const FlagosVendor) -> Result<&'static Library, String> {
    GIVEN.set(table);
    // SAFETY: what the table says of its size is true, see `Guarded`.
    let outcome = unsafe { Library::adopt("random", Some(entry), Some(exported::kernels_entry)) };
    outcome.map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.context("at"), Some("random"));
        error.to_string()
    })
}

const SIZE: usize = size_of::<FlagosVendor>();
const FIRST_SLOT: usize = offset_of!(FlagosVendor, last_error);
const SLOTS: usize = (offset_of!(FlagosVendor, reserved) - FIRST_SLOT) / size_of::<usize>();
/// The slots that no version has a meaning for.
const RESERVED: usize = (SIZE - offset_of!(FlagosVendor, reserved)) / size_of::<usize>();
/// The slots of capabilities, which come last.
const OPTIONAL: usize = 24;
const KNOWN: u64 = 511;
/// The bits of version 1.0.
const KNOWN_1_0: u64 = 31;
/// Those that version 1.1 knows.
const KNOWN_1_1: u64 = 63;
/// Those of version 1.2.
const KNOWN_1_2: u64 = 255;

#[test]
fn a_table_that_is_null_or_unaligned_is_refused() {
    assert!(adopt(null()).expect_err("refused").contains("it declines"));
    let table = Guarded::new(&exported::table(true), SIZE);
    let unaligned = table.address().wrapping_byte_add(4);
    let error = adopt(unaligned).expect_err("refused");
    assert!(error.contains("unaligned"), "{error}");
    // SAFETY: the entry function is never called.
    let error = unsafe { Library::adopt("random", None, None) }.expect_err("refused");
    assert!(error.to_string().contains("the entry function is NULL"));
}

#[test]
fn every_smaller_size_is_refused() {
    let whole = exported::table(true);
    for size in 0..SIZE {
        let error = adopt(Guarded::new(&whole, size).address()).expect_err("refused");
        assert!(
            error.contains(&format!("struct_size of {size} bytes")),
            "{error}"
        );
    }
    let described = exported::description();
    for size in 0..size_of::<FlagosVendorDescription>() {
        let description = Guarded::new(&described, size);
        let mut table = exported::table(true);
        table.description = description.address();
        let error = adopt(&table).expect_err("refused");
        assert!(
            error.contains(&format!("struct_size of {size} bytes")),
            "{error}"
        );
    }
}

#[test]
fn all_missing_functions_are_named() {
    let mut table = exported::table(true);
    table.probe = None;
    table.event_wait = None;
    let error = adopt(&table).expect_err("refused");
    assert!(error.contains("probe, event_wait are missing"), "{error}");
    let mut table = exported::table(true);
    table.capabilities |= FLAGOS_VENDOR_EXTERNAL_STREAMS;
    let error = adopt(&table).expect_err("refused");
    assert!(error.contains("stream_external is missing"), "{error}");
    let mut table = exported::table(true);
    table.capabilities |= FLAGOS_VENDOR_NATIVE_HANDLES | FLAGOS_VENDOR_LAUNCHES;
    let error = adopt(&table).expect_err("refused");
    let missing = "stream_native_handle, module_load, module_unload, kernel_create, kernel_external, \
        kernel_destroy, kernel_launch, memory_device_address are missing";
    assert!(error.contains(missing), "{error}");
}

/// Does nothing as `FlagosVendor::capture_begin`.
unsafe extern "C" fn begin(_: *mut FlagosVendorStream, _: i32) -> i32 {
    FLAGOS_VENDOR_OK
}

#[test]
fn what_version_1_0_reserves_is_reserved_there() {
    let mut table = exported::table(true);
    table.minor = 0;
    (table.memory_padding, table.capability_check) = (None, None);
    let library = adopt(&table).expect("taken");
    assert_eq!(library.version(), (FLAGOS_VENDOR_MAJOR, 0));
    table.capture_begin = Some(begin);
    let error = adopt(&table).expect_err("refused");
    assert!(
        error.contains("reserved slot 0 of the table is not NULL"),
        "{error}"
    );
    table.capture_begin = None;
    table.capabilities |= FLAGOS_VENDOR_CAPTURES;
    let error = adopt(&table).expect_err("refused");
    assert!(
        error.contains("the bits 0x20, which have no meaning in version 1.0"),
        "{error}"
    );
    // A slot without its bit is left alone, as any other capability's.
    let mut table = exported::table(true);
    table.capture_begin = Some(begin);
    assert!(!adopt(&table).expect("taken").can(FLAGOS_VENDOR_CAPTURES));
    table.capabilities |= FLAGOS_VENDOR_CAPTURES;
    let error = adopt(&table).expect_err("refused");
    let missing = "capture_status, capture_end, graph_launch, graph_destroy are missing";
    assert!(error.contains(missing), "{error}");
}

#[test]
fn what_version_1_1_reserves_is_reserved_there() {
    let mut table = exported::table(true);
    table.minor = 1;
    table.capability_check = None;
    let error = adopt(&table).expect_err("refused");
    assert!(
        error.contains("reserved slot 5 of the table is not NULL"),
        "{error}"
    );
    table.memory_padding = None;
    adopt(&table).expect("taken");
    table.capabilities |= FLAGOS_VENDOR_SHARES | FLAGOS_VENDOR_REACHES_PEERS;
    let error = adopt(&table).expect_err("refused");
    assert!(
        error.contains("the bits 0xc0, which have no meaning in version 1.1"),
        "{error}"
    );
    table.minor = 2;
    let error = adopt(&table).expect_err("refused");
    let missing =
        "memory_export, memory_import, memory_close, memory_close_all, device_reaches are missing";
    assert!(error.contains(missing), "{error}");
}

/// Does nothing as `FlagosVendor::declaration_try`.
unsafe extern "C" fn try_nothing(_: usize, _: *mut c_char, _: usize) -> i32 {
    FLAGOS_VENDOR_OK
}

#[test]
fn declarations_have_a_name_and_a_grade() {
    let declaration = |name: &'static CStr, grade: char| FlagosVendorDeclaration {
        struct_size: size_of::<FlagosVendorDeclaration>(),
        name: name.as_ptr(),
        grade: i32::from(grade as u8),
        reserved_word: 0,
    };
    let both = [declaration(c"first", 'B'), declaration(c"second", 'C')];
    let mut table = exported::table(true);
    (table.declarations, table.num_declarations) = (both.as_ptr(), both.len());
    let error = adopt(&table).expect_err("nothing tries them");
    assert!(error.contains("declaration_try is missing"), "{error}");
    table.declaration_try = Some(try_nothing);
    let library = adopt(&table).expect("taken");
    let expected = [("first".to_owned(), 'B'), ("second".to_owned(), 'C')];
    assert_eq!(library.declarations(), expected);
    assert_eq!(library.try_declaration(1), Ok(String::new()));
    let reason = library.try_declaration(2).expect_err("there are two");
    assert!(reason.contains("no declaration 2"), "{reason}");
    let wrong = [declaration(c"first", 'A')];
    (table.declarations, table.num_declarations) = (wrong.as_ptr(), wrong.len());
    let error = adopt(&table).expect_err("refused");
    assert!(error.contains("declarations[0].grade is 65"), "{error}");
    table.minor = 2;
    table.capability_check = None;
    let error = adopt(&table).expect_err("refused");
    assert!(error.contains("reserved slot 1 of the table"), "{error}");
}

#[test]
fn a_longer_table_of_a_newer_version_is_taken() {
    #[repr(C)]
    struct Newer {
        table: FlagosVendor,
        appended: [usize; 4],
    }
    let mut newer = Newer {
        table: exported::table(true),
        appended: [usize::MAX; 4],
    };
    newer.table.struct_size = size_of::<Newer>();
    newer.table.minor = 9;
    newer.table.capabilities |= 1 << 40;
    newer.table.reserved[3] = std::ptr::dangling();
    assert_eq!(newer.appended, [usize::MAX; 4]);
    let library = adopt(&newer.table).expect("taken");
    assert_eq!(library.version(), (FLAGOS_VENDOR_MAJOR, 9));
    assert!(!library.can(1 << 40), "a bit without a meaning here");
    assert_eq!(library.probe().expect("devices"), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tables_are_taken_as_the_model_says(
        size in prop_oneof![3 => Just(SIZE), 1 => 0..SIZE],
        major in prop_oneof![6 => Just(FLAGOS_VENDOR_MAJOR), 1 => any::<u32>()],
        minor in prop_oneof![3 => Just(FLAGOS_VENDOR_MINOR), 1 => Just(0), 1 => Just(1), 1 => Just(2), 1 => any::<u32>()],
        bits in prop_oneof![3 => 0..=KNOWN, 1 => any::<u64>()],
        nulls in prop_oneof![3 => Just(vec![]), 1 => vec(0..SLOTS, 1..4)],
        reserved in prop_oneof![4 => Just(None), 1 => (0_usize..RESERVED).prop_map(Some)],
        described in prop_oneof![8 => Just(true), 1 => Just(false)],
    ) {
        let mut table = exported::table(true);
        if minor < 2 {
            table.memory_padding = None;
        }
        if minor < 3 {
            table.capability_check = None;
        }
        (table.major, table.minor, table.capabilities) = (major, minor, bits);
        if !described {
            table.description = null();
        }
        if let Some(slot) = reserved {
            table.reserved[slot] = std::ptr::dangling();
        }
        let slots = std::ptr::from_mut(&mut table).cast::<usize>();
        for slot in &nulls {
            // SAFETY: a slot is an optional function, of which 0 is none.
            unsafe { slots.add(FIRST_SLOT / size_of::<usize>() + slot).write(0) };
        }
        let given = Guarded::new(&table, size);

        let newer = minor > FLAGOS_VENDOR_MINOR;
        let optional = [
            FLAGOS_VENDOR_NATIVE_HANDLES,
            FLAGOS_VENDOR_EXTERNAL_STREAMS,
            FLAGOS_VENDOR_LAUNCHES,
            FLAGOS_VENDOR_CAPTURES,
            FLAGOS_VENDOR_SHARES,
            FLAGOS_VENDOR_REACHES_PEERS,
            FLAGOS_VENDOR_SEES_CAPTURES,
        ];
        let known = match minor {
            0 => KNOWN_1_0,
            1 => KNOWN_1_1,
            2 => KNOWN_1_2,
            _ => KNOWN,
        };
        let fits = size == SIZE
            && major == FLAGOS_VENDOR_MAJOR
            && (newer || bits & !known == 0)
            && (newer || reserved.is_none())
            && nulls.iter().all(|&slot| slot >= SLOTS - OPTIONAL)
            && optional.iter().all(|bit| bits & bit == 0)
            && described;
        match adopt(given.address()) {
            Ok(library) => {
                prop_assert!(fits);
                prop_assert_eq!(library.version(), (major, minor));
                prop_assert_eq!(library.probe().ok(), Some(1));
                prop_assert_eq!(library.can(FLAGOS_VENDOR_HOST_COMPUTES), bits & 1 != 0);
            }
            Err(error) => prop_assert!(!fits, "{}", error),
        }
    }

    #[test]
    fn descriptions_are_taken_as_the_model_says(
        size in prop_oneof![3 => Just(size_of::<FlagosVendorDescription>()),
                            1 => 0..size_of::<FlagosVendorDescription>()],
        name in prop_oneof!["[a-z][a-z0-9_]{0,31}", "[ -~]{0,40}"],
        raw in vec(1_u8..=255, 0..20),
        aliases in vec("[a-z]{0,3}", 0..4),
        variables in vec(("[A-Z]{1,8}|[a-z]{0,2}", "[ -~]{0,8}"), 0..4),
        stride in prop_oneof![4 => Just(24_usize), 1 => Just(32), 1 => 0_usize..24],
        serving in -1..4,
        torch in prop_oneof![Just(None), "[a-z]{0,3}".prop_map(Some)],
        dlpack in prop_oneof![4 => 1_i32..30, 1 => any::<i32>()],
    ) {
        let text = |text: &str| CString::new(text).expect("no NUL");
        let owned = (text(&name), CString::new(raw.clone()).expect("no NUL"), torch.as_deref().map(text));
        let texts: Vec<_> = aliases.iter().map(|alias| text(alias)).collect();
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(null());
        let pairs: Vec<_> = variables.iter().map(|(name, what)| (text(name), text(what))).collect();
        // Each entry is followed by what a newer version would append.
        let mut words = Vec::new();
        for (name, what) in &pairs {
            words.extend([stride, name.as_ptr() as usize, what.as_ptr() as usize]);
            words.extend((24..stride).step_by(8).map(|_| usize::MAX));
        }
        let mut description = exported::description();
        description.name = owned.0.as_ptr();
        description.version = owned.1.as_ptr();
        description.aliases = list.as_ptr();
        description.variables = words.as_ptr().cast();
        description.num_variables = pairs.len();
        description.serving = serving;
        description.torch_device_type = owned.2.as_ref().map_or(null(), |text| text.as_ptr());
        description.dlpack_device_type = dlpack;
        let given = Guarded::new(&description, size);
        let mut table = exported::table(true);
        table.description = given.address();

        let begins = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
        let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_name = |name: &str| begins(name) && name.chars().all(part) && name.len() <= 31;
        let capital = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase());
        let fits = size == size_of::<FlagosVendorDescription>()
            && is_name(&name)
            && !raw.is_empty()
            && std::str::from_utf8(&raw).is_ok()
            && aliases.iter().all(|alias| is_name(alias))
            && (pairs.is_empty() || stride >= 24)
            && variables.iter().all(|(name, what)| capital(name) && !what.is_empty())
            && (0..=2).contains(&serving)
            && (serving != FLAGOS_VENDOR_SERVED_BY_TORCH || torch.as_ref().is_some_and(|t| !t.is_empty()))
            && dlpack >= 1;
        match adopt(&table) {
            Ok(library) => {
                prop_assert!(fits);
                let told = library.description();
                prop_assert_eq!(&told.name, &name);
                prop_assert_eq!(&told.aliases, &aliases);
                let read: Vec<_> = told.variables.iter().map(|v| (v.name.clone(), v.text.clone())).collect();
                prop_assert_eq!(read, variables);
            }
            Err(error) => prop_assert!(!fits, "{}", error),
        }
    }

    #[test]
    fn results_that_cannot_be_are_errors(count in prop_oneof![-2..130, any::<i32>()], code in any::<i32>(), fails in any::<bool>()) {
        thread_local! {
            static ANSWER: Cell<(i32, i32)> = const { Cell::new((0, 0)) };
        }
        unsafe extern "C" fn probe(out: *mut i32) -> i32 {
            let (count, code) = ANSWER.get();
            // SAFETY: a valid output.
            unsafe { out.write(count) };
            code
        }
        unsafe extern "C" fn open(_: *const FlagosVendorOptions, out: *mut *mut FlagosVendorInstance) -> i32 {
            // SAFETY: a valid output.
            unsafe { out.write(null_mut()) };
            FLAGOS_VENDOR_OK
        }
        let code = if fails { code } else { FLAGOS_VENDOR_OK };
        ANSWER.set((count, code));
        let mut table = exported::table(true);
        table.probe = Some(probe);
        table.open = Some(open);
        let library = adopt(&table).expect("taken");
        match library.probe() {
            Ok(told) => prop_assert!(code == 0 && (1..128).contains(&count) && told == count as usize),
            Err(error) => {
                prop_assert!(code != 0 || !(1..128).contains(&count));
                prop_assert_eq!(error.context("vendor"), Some("exported"));
            }
        }
        let opened = flagos_core::vendors::library::open(library, Box::leak(Box::default()));
        prop_assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Internal));
    }
}
