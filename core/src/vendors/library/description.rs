//! The description of a vendor, read from its library.

use std::ffi::c_char;
use std::mem::{offset_of, size_of};

use crate::descriptions::{Description, NeededLibrary, Serving, Variable, check_name};

use super::table::{copy, reserved_are_null};
use super::text::{list, required};
use super::types::*;

/// The size of the description in version 1.0.
const SIZE_1_0: usize =
    offset_of!(FlagosVendorDescription, reserved) + size_of::<[*const (); 16]>();
/// The most entries of an array of structs.
const LONGEST: usize = 256;

/// The description at `given`, or what is wrong with it. `newer` says that the library was compiled with a newer
/// minor version, and may use what is reserved here.
///
/// # Safety
/// `given` is NULL or a description as `flagos_vendor.h` tells.
pub(super) unsafe fn read(
    given: *const FlagosVendorDescription,
    newer: bool,
) -> Result<Description, String> {
    // SAFETY: the caller's promise; zero is a value of every member.
    let raw = unsafe { copy("description", given, SIZE_1_0) }?;
    if !newer {
        reserved_are_null("description", &raw.reserved)?;
    }
    // SAFETY: the caller's promise, for all that the description points at.
    unsafe {
        Ok(Description {
            name: name("name", raw.name)?,
            version: required("version", raw.version)?,
            aliases: list("aliases", raw.aliases, name)?,
            variables: structs("variables", raw.variables, raw.num_variables, variable)?,
            libraries: structs("libraries", raw.libraries, raw.num_libraries, needed)?,
            device_lost: list("device_lost", raw.device_lost, required)?,
            collective_engine: optional("collective_engine", raw.collective_engine)?,
            triton_backend: optional("triton_backend", raw.triton_backend)?,
            flaggems_vendor: optional("flaggems_vendor", raw.flaggems_vendor)?,
            serving: serving(raw.serving, raw.torch_device_type)?,
            dlpack_device_type: positive("dlpack_device_type", raw.dlpack_device_type)?,
        })
    }
}

unsafe fn optional(member: &str, given: *const c_char) -> Result<Option<String>, String> {
    // SAFETY: the caller's promise.
    (!given.is_null())
        .then(|| unsafe { required(member, given) })
        .transpose()
}

/// The name of a vendor.
unsafe fn name(member: &str, given: *const c_char) -> Result<String, String> {
    // SAFETY: the caller's promise.
    let name = unsafe { required(member, given) }?;
    match check_name(&name) {
        Ok(()) => Ok(name),
        Err(wrong) => Err(format!("{member}: {wrong}")),
    }
}

/// The declarations of a library about the library beneath it: each name with its grade.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn declarations(table: &FlagosVendor) -> Result<Vec<(String, char)>, String> {
    let (given, count) = (table.declarations, table.num_declarations);
    // SAFETY: the caller's promise.
    unsafe { structs("declarations", given, count, declaration) }
}

unsafe fn declaration(
    what: &str,
    given: FlagosVendorDeclaration,
) -> Result<(String, char), String> {
    // SAFETY: the caller's promise.
    let name = unsafe { required(&format!("{what}.name"), given.name) }?;
    match u8::try_from(given.grade).map(char::from) {
        Ok(grade @ ('B' | 'C')) => Ok((name, grade)),
        _ => Err(format!(
            "{what}.grade is {}: the letters `B` and `C` have a meaning",
            given.grade
        )),
    }
}

/// An array of structs, each as long as the first says.
unsafe fn structs<T, R>(
    member: &str,
    given: *const T,
    count: usize,
    read: unsafe fn(&str, T) -> Result<R, String>,
) -> Result<Vec<R>, String> {
    if count > LONGEST {
        return Err(format!(
            "num_{member} is {count}, at most {LONGEST} are taken"
        ));
    }
    let mut stride = 0;
    let entries = (0..count).map(|index| {
        let what = format!("{member}[{index}]");
        // SAFETY: the caller's promise: `count` structs of `stride` bytes, which the first says.
        unsafe {
            let entry = given.byte_add(index * stride);
            let copied = copy(&what, entry, size_of::<T>())?;
            if index == 0 {
                stride = entry.cast::<usize>().read();
            }
            read(&what, copied)
        }
    });
    entries.collect()
}

unsafe fn variable(what: &str, given: FlagosVendorVariable) -> Result<Variable, String> {
    // SAFETY: the caller's promise.
    unsafe {
        let name = required(&format!("{what}.name"), given.name)?;
        let part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(part) {
            return Err(format!(
                "{what}.name is `{name}`: the name of a variable is of capitals, digits and `_`"
            ));
        }
        let text = required(&format!("{what}.text"), given.text)?;
        Ok(Variable { name, text })
    }
}

unsafe fn needed(what: &str, given: FlagosVendorLibrary) -> Result<NeededLibrary, String> {
    // SAFETY: the caller's promise.
    unsafe {
        Ok(NeededLibrary {
            soname: required(&format!("{what}.soname"), given.soname)?,
            text: required(&format!("{what}.text"), given.text)?,
            required: given.required != 0,
        })
    }
}

unsafe fn serving(given: i32, torch: *const c_char) -> Result<Serving, String> {
    match given {
        FLAGOS_VENDOR_SERVED_BY_HOST => Ok(Serving::Host),
        FLAGOS_VENDOR_SERVED_BY_LIBRARY => Ok(Serving::Library),
        FLAGOS_VENDOR_SERVED_BY_TORCH => {
            // SAFETY: the caller's promise.
            let torch = unsafe { required("torch_device_type", torch) }?;
            Ok(Serving::Torch(torch))
        }
        _ => Err(format!(
            "serving is {given}, which is none of FLAGOS_VENDOR_SERVED_BY_*"
        )),
    }
}

fn positive(member: &str, given: i32) -> Result<i32, String> {
    match given {
        1.. => Ok(given),
        _ => Err(format!("{member} is {given}: DLPack's types begin with 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_serving_have_the_numbers_of_the_header() {
        for (number, torch) in [
            (FLAGOS_VENDOR_SERVED_BY_HOST, std::ptr::null()),
            (FLAGOS_VENDOR_SERVED_BY_TORCH, c"chip".as_ptr()),
            (FLAGOS_VENDOR_SERVED_BY_LIBRARY, std::ptr::null()),
        ] {
            // SAFETY: NULL, or a literal.
            let read = unsafe { serving(number, torch) }.expect("a way of serving");
            assert_eq!(read.number(), number);
        }
    }
}
