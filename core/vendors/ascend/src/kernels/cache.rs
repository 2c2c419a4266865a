//! Executors that are kept, by their signatures.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use super::prepared::Prepared;

/// All that an executor depends on but addresses.
pub(super) type Signature = Box<[u64]>;

/// What is known of a signature.
#[derive(Clone)]
pub(super) enum Kept {
    Executor(Arc<Prepared>),
    /// CANN does not repeat executors of this signature.
    Refused,
}

struct Entry {
    kept: Kept,
    /// The age in which it was used last.
    age: u64,
}

/// The executors of a process.
pub(super) struct Cache {
    /// The most signatures; 0 keeps none.
    most: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    known: HashMap<Signature, Entry, BuildHasherDefault<Mixer>>,
    age: u64,
}

impl Cache {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            entries: Mutex::default(),
        }
    }

    /// Whether any executor is kept.
    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }

    pub(super) fn find(&self, signature: &[u64]) -> Option<Kept> {
        let mut entries = self.entries.lock();
        let age = entries.age;
        let entry = entries.known.get_mut(signature)?;
        entry.age = age;
        Some(entry.kept.clone())
    }

    /// Keeps an executor. When there is no room, those go that were not used since there was none the last time.
    pub(super) fn insert(&self, signature: Signature, kept: Kept) {
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        if entries.known.len() >= self.most {
            let age = entries.age;
            let old: Vec<Signature> = entries
                .known
                .iter()
                .filter(|(_, entry)| entry.age < age)
                .map(|(signature, _)| signature.clone())
                .collect();
            match old.len() {
                // All of them are in use: a program whose shapes change at every call.
                0 => gone.extend(entries.known.drain().map(|(_, entry)| entry)),
                _ => gone.extend(
                    old.iter()
                        .filter_map(|signature| entries.known.remove(signature)),
                ),
            }
            entries.age += 1;
        }
        let age = entries.age;
        gone.extend(entries.known.insert(signature, Entry { kept, age }));
        drop(entries);
        // Executors are destroyed outside of the lock.
        drop(gone);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().known.len()
    }
}

/// A hash of words: signatures are long, and nobody chooses them to collide.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.mix(u64::from_ne_bytes(whole));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(number: u64) -> Signature {
        vec![7, number].into()
    }

    #[test]
    fn signatures_are_compared_whole() {
        let cache = Cache::new(8);
        cache.insert(signature(1), Kept::Refused);
        assert!(cache.find(&[7, 1]).is_some());
        for other in [&[7, 2][..], &[7], &[7, 1, 0]] {
            assert!(cache.find(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn those_go_that_were_not_used_for_long() {
        let cache = Cache::new(4);
        (0..4).for_each(|number| cache.insert(signature(number), Kept::Refused));
        // Full: all are of one age, so all go.
        cache.insert(signature(4), Kept::Refused);
        assert_eq!(cache.len(), 1);
        (5..8).for_each(|number| cache.insert(signature(number), Kept::Refused));
        cache.insert(signature(8), Kept::Refused);
        assert_eq!(cache.len(), 1);
        (9..12).for_each(|number| cache.insert(signature(number), Kept::Refused));
        assert!(cache.len() <= 4);
    }

    #[test]
    fn what_is_used_stays() {
        let cache = Cache::new(2);
        cache.insert(signature(0), Kept::Refused);
        for number in 1..20 {
            cache.insert(signature(number), Kept::Refused);
            cache.insert(signature(0), Kept::Refused);
            assert!(cache.find(&signature(0)).is_some(), "{number}");
            assert!(cache.len() <= 2);
        }
    }
}
