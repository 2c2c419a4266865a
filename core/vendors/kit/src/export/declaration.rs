//! What a vendor takes for granted of a library beneath it, as the table has it.

use std::ffi::{CString, NulError, c_char};
use std::ptr::null;

use flagos_core::error::panic_text;
use flagos_core::vendors::library::*;

use super::exported::{Declaration, Export};
use super::outcome::refused;

/// The declarations as an array of the interface, with their texts.
pub(super) struct Declared {
    raw: Box<[FlagosVendorDeclaration]>,
    _names: Vec<CString>,
}

impl Declared {
    pub(super) fn new(declarations: &[Declaration]) -> Result<Self, NulError> {
        let names = declarations.iter().map(|one| CString::new(one.name));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let raw = declarations.iter().zip(&names);
        let raw = raw.map(|(declaration, name)| FlagosVendorDeclaration {
            struct_size: size_of::<FlagosVendorDeclaration>(),
            name: name.as_ptr(),
            grade: declaration.grade as i32,
            reserved_word: 0,
        });
        Ok(Self {
            raw: raw.collect(),
            _names: names,
        })
    }

    /// The array, which stays where it is, and its length.
    pub(super) fn array(&self) -> (*const FlagosVendorDeclaration, usize) {
        match &*self.raw {
            [] => (null(), 0),
            raw => (raw.as_ptr(), raw.len()),
        }
    }
}

/// `FlagosVendor::declaration_try`.
pub(super) unsafe extern "C" fn declaration_try<E: Export>(
    index: usize,
    shown: *mut c_char,
    nbytes: usize,
) -> i32 {
    let run = || match E::declarations().get(index) {
        Some(declaration) => (declaration.run)(),
        None => Err(format!("there is no declaration {index}")),
    };
    let tried = std::panic::catch_unwind(run)
        .unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))));
    let text = match tried {
        Ok(text) => text,
        Err(wrong) => return refused(&wrong),
    };
    let mut end = text.len().min(nbytes.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: room for `nbytes`, of which the text and its NUL take no more.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), shown, end);
        shown.add(end).write(0);
    }
    FLAGOS_VENDOR_OK
}
