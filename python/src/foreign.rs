//! Python objects registered as implementations, by the tokens that the core has for them.
//!
//! The core never sees a Python object: it stores the token, and an adapter that finds the token in an
//! operator's slot asks this module for the object.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The next token. Tokens begin with 1, because a slot without a foreign implementation holds 0.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);
static OBJECTS: Mutex<Option<HashMap<u64, Py<PyAny>>>> = Mutex::new(None);

/// Locks the table. The lock is never held while Python code can run, so that waiting for it cannot deadlock
/// with the GIL.
fn objects() -> MutexGuard<'static, Option<HashMap<u64, Py<PyAny>>>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `object` alive and returns its token. Tokens are never reused, so that a stale token finds no object
/// instead of another one.
pub fn keep(object: Py<PyAny>) -> u64 {
    let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
    objects()
        .get_or_insert_with(HashMap::new)
        .insert(token, object);
    token
}

/// The object behind `token`.
pub fn find(py: Python<'_>, token: u64) -> Option<Py<PyAny>> {
    objects()
        .as_ref()
        .and_then(|map| map.get(&token))
        .map(|object| object.clone_ref(py))
}

/// Forgets `token`. The object is released after the lock, because its finaliser may run Python.
pub fn forget(token: u64) {
    let object = objects().as_mut().and_then(|map| map.remove(&token));
    drop(object);
}
