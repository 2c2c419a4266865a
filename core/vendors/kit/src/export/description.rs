//! A description in the form of C.

use std::ffi::{CString, NulError, c_char};
use std::mem::size_of;
use std::ptr::null;

use flagos_core::descriptions::{Description, Serving};

use flagos_core::vendors::library::*;

/// A [`FlagosVendorDescription`] with all that it points at.
pub(super) struct Described {
    raw: Box<FlagosVendorDescription>,
    _owned: Owned,
}

// SAFETY: nobody writes it.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

/// What a description points at. Moving it moves none of that.
#[derive(Default)]
struct Owned {
    texts: Vec<CString>,
    lists: Vec<Box<[*const c_char]>>,
    variables: Box<[FlagosVendorVariable]>,
    libraries: Box<[FlagosVendorLibrary]>,
}

impl Described {
    /// Fails when a text has a NUL inside.
    pub(super) fn new(description: &Description) -> Result<Self, NulError> {
        let mut owned = Owned::default();
        let variables = description.variables.iter().map(|variable| {
            Ok(FlagosVendorVariable {
                struct_size: size_of::<FlagosVendorVariable>(),
                name: owned.text(&variable.name)?,
                text: owned.text(&variable.text)?,
            })
        });
        let variables: Box<[_]> = variables.collect::<Result<_, _>>()?;
        let libraries = description.libraries.iter().map(|library| {
            Ok(FlagosVendorLibrary {
                struct_size: size_of::<FlagosVendorLibrary>(),
                soname: owned.text(&library.soname)?,
                text: owned.text(&library.text)?,
                required: library.required.into(),
                reserved_word: 0,
            })
        });
        let libraries: Box<[_]> = libraries.collect::<Result<_, _>>()?;
        let (serving, torch) = match &description.serving {
            Serving::Host => (FLAGOS_VENDOR_SERVED_BY_HOST, None),
            Serving::Torch(device_type) => (FLAGOS_VENDOR_SERVED_BY_TORCH, Some(device_type)),
            Serving::Library => (FLAGOS_VENDOR_SERVED_BY_LIBRARY, None),
        };
        let raw = Box::new(FlagosVendorDescription {
            struct_size: size_of::<FlagosVendorDescription>(),
            name: owned.text(&description.name)?,
            version: owned.text(&description.version)?,
            aliases: owned.list(&description.aliases)?,
            variables: variables.as_ptr(),
            num_variables: variables.len(),
            libraries: libraries.as_ptr(),
            num_libraries: libraries.len(),
            device_lost: owned.list(&description.device_lost)?,
            collective_engine: owned.optional(description.collective_engine.as_ref())?,
            triton_backend: owned.optional(description.triton_backend.as_ref())?,
            flaggems_vendor: owned.optional(description.flaggems_vendor.as_ref())?,
            torch_device_type: owned.optional(torch)?,
            serving,
            dlpack_device_type: description.dlpack_device_type,
            reserved: [null(); 16],
        });
        (owned.variables, owned.libraries) = (variables, libraries);
        Ok(Self { raw, _owned: owned })
    }

    /// The struct, which stays where it is.
    pub(super) fn address(&self) -> *const FlagosVendorDescription {
        &*self.raw
    }
}

impl Owned {
    fn text(&mut self, text: &str) -> Result<*const c_char, NulError> {
        let text = CString::new(text)?;
        let address = text.as_ptr();
        self.texts.push(text);
        Ok(address)
    }

    fn optional(&mut self, text: Option<&String>) -> Result<*const c_char, NulError> {
        text.map_or(Ok(null()), |text| self.text(text))
    }

    /// A list that ends with NULL.
    fn list(&mut self, texts: &[String]) -> Result<*const *const c_char, NulError> {
        let list = texts.iter().map(|text| self.text(text));
        let mut list = list.collect::<Result<Vec<_>, _>>()?;
        list.push(null());
        let list = list.into_boxed_slice();
        let address = list.as_ptr();
        self.lists.push(list);
        Ok(address)
    }
}
