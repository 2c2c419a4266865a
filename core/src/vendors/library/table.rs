//! The table that a library returns, read no further than the library wrote it, and checked.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::ops::RangeInclusive;

use super::host::MAJORS;
use super::types::*;

/// The size of the table in version 1.0, before anything was appended. What has got a meaning since was reserved.
const SIZE_1_0: usize = offset_of!(FlagosVendor, capture_begin) + size_of::<[*const (); 32]>();

/// The first minor version in which a bit has a meaning, of the bits that version 1.0 does not have.
const SINCE: [(u64, u32); 4] = [
    (FLAGOS_VENDOR_CAPTURES, 1),
    (FLAGOS_VENDOR_SHARES, 2),
    (FLAGOS_VENDOR_REACHES_PEERS, 2),
    (FLAGOS_VENDOR_SEES_CAPTURES, 3),
];

/// The bits that this host knows, with their names.
const CAPABILITIES: [(u64, &str); 9] = [
    (FLAGOS_VENDOR_HOST_COMPUTES, "HOST_COMPUTES"),
    (FLAGOS_VENDOR_NATIVE_HANDLES, "NATIVE_HANDLES"),
    (FLAGOS_VENDOR_EXTERNAL_STREAMS, "EXTERNAL_STREAMS"),
    (FLAGOS_VENDOR_TELLS_MEMORY, "TELLS_MEMORY"),
    (FLAGOS_VENDOR_LAUNCHES, "LAUNCHES"),
    (FLAGOS_VENDOR_CAPTURES, "CAPTURES"),
    (FLAGOS_VENDOR_SHARES, "SHARES"),
    (FLAGOS_VENDOR_REACHES_PEERS, "REACHES_PEERS"),
    (FLAGOS_VENDOR_SEES_CAPTURES, "SEES_CAPTURES"),
];

/// A copy of the struct at `given`, whose members beyond the size it claims are zero. Fails below `smallest` bytes.
///
/// # Safety
/// `given` points at a `usize`, and at as many bytes as that says. All-zero bytes are a `T`, which begins with a `usize`,
/// and so are any bytes that the other side writes.
pub(super) unsafe fn copy<T>(what: &str, given: *const T, smallest: usize) -> Result<T, String> {
    if given.is_null() {
        return Err(format!("{what} is NULL"));
    }
    if !given.is_aligned() {
        return Err(format!("{what} is at the unaligned address {given:p}"));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { given.cast::<usize>().read() };
    if size < smallest {
        return Err(format!(
            "{what} has a struct_size of {size} bytes, at least {smallest} are needed"
        ));
    }
    let mut copied = MaybeUninit::<T>::zeroed();
    // SAFETY: both sides have the bytes, and all bytes of a `T` are written, by this or by `zeroed`.
    unsafe {
        let bytes = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), copied.as_mut_ptr().cast(), bytes);
        Ok(copied.assume_init())
    }
}

/// The first members, which every version has.
#[repr(C)]
struct Head {
    struct_size: usize,
    major: u32,
    minor: u32,
}

/// [`copy`] of a table, which begins with a [`Head`]. Fails for another major version, whatever follows.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn versioned<T>(
    what: &str,
    given: *const T,
    majors: &RangeInclusive<u32>,
    smallest: usize,
) -> Result<T, String> {
    // SAFETY: the caller's promise, which is also that of a part.
    let head = unsafe { copy(what, given.cast::<Head>(), size_of::<Head>()) }?;
    if !majors.contains(&head.major) {
        return Err(format!(
            "{what} has version {}.{}, and this flagos takes {}.x",
            head.major,
            head.minor,
            majors.end()
        ));
    }
    // SAFETY: the caller's promise.
    unsafe { copy(what, given, smallest) }
}

/// The version of the table at `given`, if this host takes it.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn version(given: *const FlagosVendor) -> Result<(u32, u32), String> {
    // SAFETY: the caller's promise, which is also that of a part.
    let head = unsafe {
        versioned(
            "the table",
            given.cast::<Head>(),
            &MAJORS,
            size_of::<Head>(),
        )
    }?;
    Ok((head.major, head.minor))
}

/// The table in a line.
pub(super) fn summary(table: &FlagosVendor) -> String {
    let can = |&(bit, name): &(u64, &'static str)| (table.capabilities & bit != 0).then_some(name);
    let names: Vec<_> = CAPABILITIES.iter().filter_map(can).collect();
    match &names[..] {
        [] => "every required function; no capabilities".into(),
        _ => format!("every required function; {}", names.join(", ")),
    }
}

/// The table at `given`, or what is wrong with it. Capabilities are those that host and library both know, and the
/// functions of the others are gone.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn read(given: *const FlagosVendor) -> Result<FlagosVendor, String> {
    // SAFETY: the caller's promise.
    let mut table = unsafe { versioned("the table", given, &MAJORS, SIZE_1_0) }?;
    let newer = table.minor > FLAGOS_VENDOR_MINOR;
    let later = SINCE.iter().filter(|(_, minor)| table.minor < *minor);
    let later = later.fold(0, |later, (bit, _)| later | bit);
    let known = CAPABILITIES.iter().fold(0, |known, (bit, _)| known | bit) & !later;
    let unknown = table.capabilities & !known;
    if unknown != 0 && !newer {
        return Err(format!(
            "capabilities has the bits {unknown:#x}, which have no meaning in version {}.{}",
            table.major, table.minor
        ));
    }
    if !newer {
        reserved_are_null("the table", &reserved(&table))?;
    }
    table.capabilities &= known;
    let can = |bit| table.capabilities & bit != 0;
    if can(FLAGOS_VENDOR_LAUNCHES) && !can(FLAGOS_VENDOR_NATIVE_HANDLES) {
        return Err(
            "capabilities has FLAGOS_VENDOR_LAUNCHES without FLAGOS_VENDOR_NATIVE_HANDLES".into(),
        );
    }
    let mut missing = missing(&table);
    if table.num_declarations > 0 && table.declaration_try.is_none() {
        missing.push("declaration_try");
    }
    if !missing.is_empty() {
        return Err(format!("{} missing: NULL", name_all(&missing)));
    }
    if table.capabilities & FLAGOS_VENDOR_NATIVE_HANDLES == 0 {
        table.stream_native_handle = None;
    }
    if table.capabilities & FLAGOS_VENDOR_EXTERNAL_STREAMS == 0 {
        table.stream_external = None;
    }
    if table.capabilities & FLAGOS_VENDOR_LAUNCHES == 0 {
        table.module_load = None;
        table.module_unload = None;
        table.kernel_create = None;
        table.kernel_external = None;
        table.kernel_destroy = None;
        table.kernel_launch = None;
        table.memory_device_address = None;
    }
    if table.capabilities & FLAGOS_VENDOR_CAPTURES == 0 {
        table.capture_begin = None;
        table.capture_end = None;
        table.graph_launch = None;
        table.graph_destroy = None;
    }
    if table.capabilities & (FLAGOS_VENDOR_CAPTURES | FLAGOS_VENDOR_SEES_CAPTURES) == 0 {
        table.capture_status = None;
    }
    if table.capabilities & FLAGOS_VENDOR_REACHES_PEERS == 0 {
        table.device_reaches = None;
    }
    if table.capabilities & FLAGOS_VENDOR_SHARES == 0 {
        table.memory_export = None;
        table.memory_import = None;
        table.memory_close = None;
        table.memory_close_all = None;
    }
    Ok(table)
}

/// The slots that the library's minor version reserves, in order.
fn reserved(table: &FlagosVendor) -> Vec<*const ()> {
    // A function is as wide as the slot it took.
    macro_rules! slots {
        ($($name:ident),*) => { [$(table.$name.map_or(std::ptr::null(), |found| found as *const ())),*] };
    }
    let mut reserved = Vec::new();
    if table.minor < 1 {
        reserved.extend(slots![
            capture_begin,
            capture_status,
            capture_end,
            graph_launch,
            graph_destroy
        ]);
    }
    if table.minor < 2 {
        reserved.extend(slots![
            device_reaches,
            memory_export,
            memory_import,
            memory_close,
            memory_close_all,
            memory_padding
        ]);
    }
    if table.minor < 3 {
        reserved.extend(slots![capability_check]);
        reserved.push(table.declarations.cast());
        reserved.push(std::ptr::without_provenance(table.num_declarations));
        reserved.extend(slots![declaration_try]);
    }
    reserved.extend(table.reserved.map(<*const _>::cast::<()>));
    reserved
}

/// Fails when a reserved slot is in use, which in a known version means that it was filled by mistake.
pub(super) fn reserved_are_null<T>(what: &str, reserved: &[*const T]) -> Result<(), String> {
    match reserved.iter().position(|slot| !slot.is_null()) {
        Some(slot) => Err(format!("reserved slot {slot} of {what} is not NULL")),
        None => Ok(()),
    }
}

/// "a is" or "a, b are".
pub(super) fn name_all(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// The required functions that are NULL, among them those of the capabilities.
fn missing(table: &FlagosVendor) -> Vec<&'static str> {
    macro_rules! slots {
        ($($name:ident),* $(,)?) => { [$((stringify!($name), table.$name.is_some())),*] };
    }
    let can = |bit| table.capabilities & bit != 0;
    let required = slots![
        last_error,
        probe,
        open,
        close,
        after_fork_in_child,
        in_stream_work,
        device_count,
        device_properties,
        device_memory,
        device_sync,
        device_quiesce,
        memory_alloc,
        memory_free,
        pinned_alloc,
        pinned_free,
        stream_default,
        stream_create,
        stream_destroy,
        stream_query,
        stream_is_idle,
        stream_sync,
        stream_copy,
        stream_host_function,
        event_create,
        event_destroy,
        event_record,
        event_wait,
        event_query,
        event_sync,
        event_elapsed,
    ];
    let launching = slots![
        module_load,
        module_unload,
        kernel_create,
        kernel_external,
        kernel_destroy,
        kernel_launch,
        memory_device_address,
    ];
    let capturing = slots![
        capture_begin,
        capture_status,
        capture_end,
        graph_launch,
        graph_destroy,
    ];
    let sharing = slots![memory_export, memory_import, memory_close, memory_close_all];
    let mut wanted = Vec::from(required);
    for (bit, slots) in [
        (
            FLAGOS_VENDOR_NATIVE_HANDLES,
            &slots![stream_native_handle][..],
        ),
        (FLAGOS_VENDOR_EXTERNAL_STREAMS, &slots![stream_external]),
        (FLAGOS_VENDOR_LAUNCHES, &launching),
        (FLAGOS_VENDOR_CAPTURES, &capturing),
        (FLAGOS_VENDOR_SHARES, &sharing),
        (FLAGOS_VENDOR_REACHES_PEERS, &slots![device_reaches]),
        (FLAGOS_VENDOR_SEES_CAPTURES, &slots![capture_status]),
    ] {
        if can(bit) {
            wanted.extend_from_slice(slots);
        }
    }
    let absent = wanted.into_iter().filter(|(_, there)| !there);
    absent.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, PartialEq)]
    struct Three {
        struct_size: usize,
        second: usize,
        third: usize,
    }

    /// The copy of a `Three` of this size, with garbage behind it, by a host that needs its first two members.
    fn copied(struct_size: usize) -> Result<Three, String> {
        let given = Three {
            struct_size,
            second: 2,
            third: 3,
        };
        // SAFETY: at most the whole struct is told to be there.
        unsafe { copy("three", &given, 16) }
    }

    #[test]
    fn members_beyond_the_size_are_zero() {
        for (struct_size, third) in [(16, 0), (24, 3)] {
            let expected = Three {
                struct_size,
                second: 2,
                third,
            };
            assert_eq!(copied(struct_size), Ok(expected));
        }
        for struct_size in [0, 8, 15] {
            let error = copied(struct_size).expect_err("too small");
            assert!(error.contains(&format!("{struct_size} bytes")), "{error}");
        }
        // SAFETY: NULL is not read.
        let error = unsafe { copy::<Three>("three", std::ptr::null(), 16) };
        assert_eq!(error, Err("three is NULL".into()));
    }
}
