//! The description of a vendor: its particulars, as data.

use std::ffi::c_char;
use std::mem::{offset_of, size_of};

use super::table::{copy, reserved_are_null};
use super::text;
use super::types::*;

/// The size of the description in version 1.0.
const SIZE_1_0: usize =
    offset_of!(FlagosVendorDescription, reserved) + size_of::<[*const (); 16]>();
/// The most entries of a list. A longer list counts as one without an end.
const LONGEST: usize = 256;

/// How a framework computes on the devices of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// Host code computes on device memory.
    Host,
    /// The framework computes on its own device type, such as `cuda`.
    Torch(String),
    /// Kernels of the library compute.
    Library,
}

/// An environment variable of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: String,
    /// The effect of the variable.
    pub text: String,
}

/// A library that a vendor uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededLibrary {
    /// The name by which the dynamic linker finds the library.
    pub soname: String,
    /// The purpose of the library.
    pub text: String,
    /// Whether the vendor needs the library.
    pub required: bool,
}

/// The description of a vendor, read from its library and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The name that selects the vendor.
    pub name: String,
    /// The version of the library, for people.
    pub version: String,
    /// Other names of the vendor.
    pub aliases: Vec<String>,
    /// The vendor's own environment variables.
    pub variables: Vec<Variable>,
    /// The libraries that `flagos doctor` looks for.
    pub libraries: Vec<NeededLibrary>,
    /// Texts that mean, in an error of any library over this vendor, that the device is lost.
    pub device_lost: Vec<String>,
    /// The collective engine for the vendor's memory.
    pub collective_engine: Option<String>,
    /// The name of the vendor's Triton backend.
    pub triton_backend: Option<String>,
    /// The name of the vendor in FlagGems.
    pub flaggems_vendor: Option<String>,
    /// How a framework computes on the devices.
    pub serving: Serving,
    /// The `DLDeviceType` of device memory.
    pub dlpack_device_type: i32,
}

impl Description {
    /// Whether an error with this text means that the device is lost.
    #[must_use]
    pub fn means_lost(&self, text: &str) -> bool {
        self.device_lost.iter().any(|known| text.contains(known))
    }

    /// The description at `given`, or what is wrong with it. `newer` says that the library was compiled with a newer
    /// minor version, and may use what is reserved here.
    ///
    /// # Safety
    /// `given` is NULL or a description as `flagos_vendor.h` tells.
    pub(super) unsafe fn read(
        given: *const FlagosVendorDescription,
        newer: bool,
    ) -> Result<Self, String> {
        // SAFETY: the caller's promise; zero is a value of every member.
        let raw = unsafe { copy("description", given, SIZE_1_0) }?;
        if !newer {
            reserved_are_null("description", &raw.reserved)?;
        }
        // SAFETY: the caller's promise, for all that the description points at.
        unsafe {
            Ok(Self {
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
}

/// A required text: not NULL and not empty.
unsafe fn required(member: &str, given: *const c_char) -> Result<String, String> {
    // SAFETY: the caller's promise.
    let text = unsafe { text::read(given) }.map_err(|what| format!("{member} {what}"))?;
    match text.is_empty() {
        true => Err(format!("{member} is empty")),
        false => Ok(text),
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
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let fits = name.len() <= 31 && name.starts_with(|c: char| c.is_ascii_lowercase());
    if fits && name.chars().all(part) {
        return Ok(name);
    }
    Err(format!(
        "{member} has `{name}`: a name is a lower-case letter, then letters, digits and `_`, at most 31 of all"
    ))
}

/// A list of texts, ended by NULL.
unsafe fn list(
    member: &str,
    given: *const *const c_char,
    read: unsafe fn(&str, *const c_char) -> Result<String, String>,
) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    if given.is_null() {
        return Ok(texts);
    }
    if !given.is_aligned() {
        return Err(format!("{member} is at the unaligned address {given:p}"));
    }
    for index in 0..LONGEST {
        // SAFETY: the caller's promise: a NULL ends the list, and none was read yet.
        let text = unsafe { given.add(index).read() };
        if text.is_null() {
            return Ok(texts);
        }
        // SAFETY: as above.
        texts.push(unsafe { read(&format!("{member}[{index}]"), text) }?);
    }
    Err(format!("{member} has no end within {LONGEST} texts"))
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
