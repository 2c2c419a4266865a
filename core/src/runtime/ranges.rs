//! A map from every address within an allocation to the allocation.

use std::collections::BTreeMap;

use parking_lot::RwLock;

/// Disjoint address ranges, each with a value.
#[derive(Debug)]
pub struct Ranges<T>(RwLock<BTreeMap<usize, (usize, T)>>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Copy> Ranges<T> {
    /// Adds `[start, start + size)`.
    pub fn insert(&self, start: usize, size: usize, value: T) {
        self.0.write().insert(start, (start + size, value));
    }

    /// Adds `[start, start + size)`, unless an address of it is within another range: returns that range's start, size and
    /// value.
    pub fn insert_apart(
        &self,
        start: usize,
        size: usize,
        value: T,
    ) -> Result<(), (usize, usize, T)> {
        let mut ranges = self.0.write();
        let end = start.saturating_add(size);
        match ranges.range(..end).next_back() {
            Some((&other, &(its_end, value))) if start < its_end => {
                Err((other, its_end - other, value))
            }
            _ => {
                ranges.insert(start, (end, value));
                Ok(())
            }
        }
    }

    /// Removes the range that begins at `start`.
    pub fn remove(&self, start: usize) {
        self.0.write().remove(&start);
    }

    /// The value of the range that contains `address`.
    pub fn find(&self, address: usize) -> Option<T> {
        let ranges = self.0.read();
        let (_, &(end, value)) = ranges.range(..=address).next_back()?;
        (address < end).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_interior_addresses_only() {
        let ranges = Ranges::default();
        ranges.insert(100, 50, 'a');
        ranges.insert(150, 10, 'b');
        let found = [99, 100, 149, 150, 159, 160].map(|address| ranges.find(address));
        assert_eq!(
            found,
            [None, Some('a'), Some('a'), Some('b'), Some('b'), None]
        );
        ranges.remove(100);
        assert_eq!(ranges.find(120), None);
    }

    #[test]
    fn ranges_that_share_an_address_are_not_added() {
        let ranges = Ranges::default();
        ranges.insert(100, 50, 'a');
        ranges.insert(200, 10, 'b');
        for (start, size, other) in [
            (100, 50, (100, 50, 'a')),
            (149, 1, (100, 50, 'a')),
            (90, 11, (100, 50, 'a')),
            (150, 51, (200, 10, 'b')),
            (90, 200, (200, 10, 'b')),
            (205, usize::MAX, (200, 10, 'b')),
        ] {
            assert_eq!(ranges.insert_apart(start, size, 'c'), Err(other));
        }
        for (start, size) in [(90, 10), (150, 50), (210, 1)] {
            assert_eq!(ranges.insert_apart(start, size, 'c'), Ok(()));
            assert_eq!(ranges.find(start), Some('c'));
        }
    }
}
