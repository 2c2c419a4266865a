//! Memory of a library that processes share.

use std::ffi::CString;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::runtime::{Exported, Sharing};

use super::call::give_back;
use super::instance::Instance;
use super::queue::Cut;
use super::text;
use super::types::FlagosVendorExported;

impl Sharing for Instance {
    fn export(&self, device: usize, address: NonNull<u8>) -> Result<Exported> {
        const FUNCTION: &str = "memory_export";
        let index = self.device(device)?;
        let mut found = FlagosVendorExported {
            struct_size: size_of::<FlagosVendorExported>(),
            key: [0; 256],
            offset: 0,
            nbytes: 0,
        };
        // SAFETY: a device of the instance and a valid output; any address may be asked about.
        unsafe {
            self.call(FUNCTION, |table| {
                let export = table.memory_export?;
                let address = address.as_ptr().cast_const().cast();
                Some(export(self.context, index, address, &mut found))
            })
        }?;
        let broken = |what: &str| self.library.broken(FUNCTION, what);
        // The library may have filled the whole array.
        found.key[255] = 0;
        // SAFETY: the array ends with a NUL.
        let key = unsafe { text::read_lossy(found.key.as_ptr()) }.unwrap_or_default();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(broken("a key that is no printable text without spaces"));
        }
        let sizes = (usize::try_from(found.offset), usize::try_from(found.nbytes));
        match sizes {
            (Ok(offset), Ok(nbytes)) if offset < nbytes => Ok(Exported {
                key,
                offset,
                nbytes,
            }),
            _ => Err(broken("an address that does not lie in its allocation")),
        }
    }

    unsafe fn import(&self, device: usize, key: &str, nbytes: usize) -> Result<NonNull<u8>> {
        const FUNCTION: &str = "memory_import";
        let index = self.device(device)?;
        let key = CString::new(key)
            .map_err(|_| Error::invalid_argument(FUNCTION, "the key has a NUL inside"))?;
        let mut address = std::ptr::null_mut();
        // SAFETY: a device of the instance, a text and a valid output; the rest is the caller's promise.
        unsafe {
            self.call(FUNCTION, |table| {
                let import = table.memory_import?;
                Some(import(
                    self.context,
                    index,
                    key.as_ptr(),
                    nbytes,
                    &mut address,
                ))
            })
        }?;
        let found = NonNull::new(address.cast::<u8>());
        let found = found.ok_or_else(|| self.library.broken(FUNCTION, "the address NULL"))?;
        self.memory
            .note_import(device, found.as_ptr() as usize, nbytes);
        Ok(found)
    }

    unsafe fn close(&self, device: usize, address: NonNull<u8>) {
        let Ok(index) = self.device(device) else {
            return;
        };
        self.drain(Cut::Free);
        self.memory.forget_import(address.as_ptr() as usize);
        // SAFETY: the caller's promise.
        unsafe {
            give_back!(
                self,
                memory_close(self.context, index, address.as_ptr().cast())
            );
        }
    }

    fn close_all(&self) {
        self.drain(Cut::Free);
        // SAFETY: a live instance.
        unsafe {
            self.give_back("memory_close_all", |table| {
                Some(table.memory_close_all?(self.context))
            });
        }
    }
}
