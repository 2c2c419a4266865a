//! What a library has given and not got back: it must give none of it again.

use std::collections::{HashMap, HashSet};
use std::fmt;

use parking_lot::Mutex;

use crate::error::Result;
use crate::runtime::Place;
use crate::runtime::ranges::Ranges;

use super::loaded::Library;

/// The allocations of a library, on every device and of page-locked memory of the host, and what it has imported.
#[derive(Default)]
pub(super) struct Memory {
    known: Ranges<Place>,
    /// The uses of each import, by its address.
    imports: Mutex<HashMap<usize, usize>>,
}

impl Memory {
    /// Notes what `function` gave. It is an error of the library if an address of it is allocated already; then what it
    /// gave is not freed, because that may free the other allocation.
    pub(super) fn note(
        &self,
        library: &Library,
        function: &'static str,
        place: Place,
        address: usize,
        nbytes: usize,
    ) -> Result<()> {
        let noted = self.known.insert_apart(address, nbytes, place);
        noted.map_err(|(other, size, place)| {
            let found = format!(
                "{nbytes} bytes at {address:#x}, but it has not got back the {size} bytes at {other:#x} {}",
                Shown(place)
            );
            library.broken(function, found)
        })
    }

    /// Forgets an allocation. Called before it is freed: afterwards the library may give its address again.
    pub(super) fn forget(&self, address: usize) {
        self.known.remove(address);
    }

    /// Notes memory of another process, whose address may be given again.
    pub(super) fn note_import(&self, device: usize, address: usize, nbytes: usize) {
        let mut imports = self.imports.lock();
        let uses = imports.entry(address).or_insert(0);
        *uses += 1;
        if *uses == 1 {
            self.known.insert(address, nbytes, Place::Device(device));
        }
    }

    /// Forgets one use of an import. Called before it is closed.
    pub(super) fn forget_import(&self, address: usize) {
        let mut imports = self.imports.lock();
        let Some(uses) = imports.get_mut(&address) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            imports.remove(&address);
            self.known.remove(address);
        }
    }

    /// The device of the memory that an address lies in, unless it is the host's.
    pub(super) fn device(&self, address: usize) -> Option<usize> {
        self.known.find(address).and_then(Place::device)
    }
}

/// A place as an error tells it.
struct Shown(Place);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Device(device) => write!(f, "of device {device}"),
            Place::Pinned => f.write_str("of pinned memory"),
            Place::Ordinary => f.write_str("of the host"),
        }
    }
}

/// The handles of a kind that a library has made and not destroyed.
#[derive(Default)]
pub(super) struct Handles(Mutex<HashSet<usize>>);

impl Handles {
    /// Notes the handle that `function` made of a `kind`. It is an error of the library if there is such a handle already;
    /// then it is not destroyed, because it is the other one's too.
    pub(super) fn note<T>(
        &self,
        library: &Library,
        function: &'static str,
        kind: &str,
        handle: *mut T,
    ) -> Result<()> {
        if handle.is_null() {
            return Err(library.broken(function, format!("no {kind}")));
        }
        if self.0.lock().insert(handle as usize) {
            Ok(())
        } else {
            let found = format!("the {kind} {handle:p}, but it has not got back that {kind}");
            Err(library.broken(function, found))
        }
    }

    /// Notes a handle that the library may give again, but as no new one.
    pub(super) fn note_lasting<T>(&self, handle: *mut T) {
        self.0.lock().insert(handle as usize);
    }

    /// Forgets a handle. Called before it is destroyed: afterwards the library may give it again.
    pub(super) fn forget<T>(&self, handle: *mut T) {
        self.0.lock().remove(&(handle as usize));
    }
}
