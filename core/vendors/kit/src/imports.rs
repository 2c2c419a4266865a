//! Memory of other processes that this one has imported by a key: each is opened once and used several times.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use flagos_core::error::{Error, Result};

/// The imports of a process.
#[derive(Default)]
pub struct Imports {
    /// The address and the number of its uses, by the key.
    known: Mutex<HashMap<CString, (usize, usize)>>,
    /// Whether the process ends, and everything has been closed.
    over: AtomicBool,
}

impl Imports {
    /// Whether imported memory begins at this address.
    pub fn contains(&self, address: usize) -> bool {
        let imports = self.known.lock();

        imports.values().any(|(known, _)| *known == address)
    }

    /// The memory of this key, which `open` opens at its first use.
    pub fn import(
        &self,
        key: &str,
        open: impl FnOnce(&CStr) -> Result<NonNull<u8>>,
    ) -> Result<NonNull<u8>> {
        let key = CString::new(key)
            .map_err(|_| Error::invalid_argument("import", "the key has a NUL inside"))?;
        let mut imports = self.known.lock();
        if let Some((address, uses)) = imports.get_mut(&key) {
            *uses += 1;
            return NonNull::new(*address as *mut u8)
                .ok_or_else(|| Error::internal("import", "an import has the address 0"));
        }
        let found = open(&key)?;
        imports.insert(key, (found.as_ptr() as usize, 1));
        Ok(found)
    }

    /// Ends a use of the memory at this address, whose last use `close` closes. `ready` is asked before; it may refuse.
    pub fn close(
        &self,
        address: NonNull<u8>,
        ready: impl FnOnce() -> Result<()>,
        close: impl FnOnce(&CStr) -> Result<()>,
    ) -> Result<()> {
        if self.over.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut imports = self.known.lock();
        let start = address.as_ptr() as usize;
        let known = imports.iter_mut().find(|(_, (known, _))| *known == start);
        let Some((key, (_, uses))) = known else {
            let message = "the address is of no imported memory";
            return Err(Error::invalid_argument("close", message));
        };
        if *uses > 1 {
            *uses -= 1;
            return Ok(());
        }
        ready()?;
        let key = key.clone();
        imports.remove(&key);
        close(&key)
    }

    /// Everything that is left, at the end of the process; nothing the second time. [`Imports::close`] does nothing
    /// afterwards.
    pub fn end(&self) -> Vec<(CString, NonNull<u8>)> {
        if self.over.swap(true, Ordering::SeqCst) {
            return Vec::new();
        }
        let left = std::mem::take(&mut *self.known.lock());
        let left = left.into_iter();
        left.filter_map(|(key, (address, _))| Some((key, NonNull::new(address as *mut u8)?)))
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_opened_once_and_closed_after_its_last_use() {
        let imports = Imports::default();
        let address = NonNull::new(0x1000 as *mut u8).expect("not null");
        let never = |_: &CStr| -> Result<NonNull<u8>> { panic!("it is open") };
        let opened = imports.import("k", |key| {
            assert_eq!(key, c"k");
            Ok(address)
        });
        assert_eq!(opened.expect("opened"), address);
        assert_eq!(imports.import("k", never).expect("known"), address);
        assert!(imports.contains(0x1000));
        let refused = || Err(Error::unsupported("close", "not now"));
        let unused = |_: &CStr| -> Result<()> { panic!("it is in use") };
        let in_use = imports.close(address, || panic!("it is in use"), unused);
        in_use.expect("one use ends");
        imports
            .close(address, refused, unused)
            .expect_err("refused");
        assert!(imports.contains(0x1000), "a refused close changes nothing");
        let closed = imports.close(address, || Ok(()), |_| Ok(()));
        closed.expect("the last use ends");
        let again = imports.close(address, || Ok(()), |_| Ok(()));
        again.expect_err("it is closed");
        imports.import("a\0b", never).expect_err("no key");
    }

    #[test]
    fn nothing_is_closed_after_the_end() {
        let imports = Imports::default();
        let address = NonNull::new(0x2000 as *mut u8).expect("not null");
        imports.import("k", |_| Ok(address)).expect("opened");
        assert_eq!(imports.end(), [(c"k".to_owned(), address)]);
        assert_eq!(imports.end(), []);
        let close = imports.close(address, || Ok(()), |_| panic!("it is over"));
        close.expect("nothing to do");
    }
}
