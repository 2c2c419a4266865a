//! Sharing between ranks that are threads, over a store of this process that can go away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::share;
use crate::{Error, ErrorKind, Result, Store};

/// A store of this process.
#[derive(Default)]
pub(crate) struct Memory {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
    gone: AtomicBool,
}

impl Memory {
    fn check(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            Err(Error::new(ErrorKind::System, "the store is gone"))
        } else {
            Ok(())
        }
    }

    fn go(&self) {
        self.gone.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

impl Store for Memory {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.check()?;
        let mut values = self.values.lock().expect("no panic");
        values.insert(key.to_owned(), value.to_vec());
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        let mut values = self.values.lock().expect("no panic");
        loop {
            self.check()?;
            if let Some(value) = values.get(key) {
                return Ok(value.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::Timeout, format!("no {key}")));
            }
            let soon = left.min(Duration::from_millis(20));
            values = self.changed.wait_timeout(values, soon).expect("no panic").0;
        }
    }
}

/// A store that answers late, as if it were far away.
struct Far<'a>(&'a Memory);

impl Store for Far<'_> {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.0.set(key, value)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        std::thread::sleep(Duration::from_millis(100));
        self.0.get(key, timeout)
    }
}

fn meet(store: &dyn Store, rank: usize, timeout: Duration) -> Result<Vec<u8>> {
    share(store, rank, 3, timeout, "here", |_| Ok(b"it".to_vec())).map(|(shared, _)| shared)
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(600);

#[test]
fn rank_0_goes_only_when_the_others_know_who_is_missing() {
    let store = Memory::default();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| meet(&Far(&store), 2, LONG));
        let first = meet(&store, 0, SHORT).expect_err("rank 1 is missing");
        store.go(); // the store was in rank 0's process
        assert_eq!(first.culprit(), Some(1));
        let second = second.join().expect("no panic");
        let second = second.expect_err("rank 1 is missing").to_string();
        assert!(second.contains("waiting for rank 1 of 3"), "{second}");
    });
}

#[test]
fn that_the_store_is_gone_is_no_ranks_fault() {
    let store = Memory::default();
    std::thread::scope(|scope| {
        let ranks = [0, 2].map(|rank| {
            let store = &store;
            scope.spawn(move || meet(store, rank, LONG))
        });
        std::thread::sleep(Duration::from_millis(50));
        store.go();
        for rank in ranks {
            let error = rank.join().expect("no panic").expect_err("it is gone");
            assert_eq!(
                (error.kind(), error.culprit()),
                (ErrorKind::System, None),
                "{error}"
            );
            assert!(error.to_string().contains("the store is gone"), "{error}");
        }
    });
}

#[test]
fn who_comes_when_all_is_over_hears_what_the_others_heard() {
    let store = Memory::default();
    meet(&store, 0, SHORT).expect_err("rank 1 is missing");
    let late = meet(&store, 2, SHORT).expect_err("rank 0 is not there any more");
    assert_eq!((late.kind(), late.culprit()), (ErrorKind::Timeout, Some(0)));
    assert!(
        late.to_string().contains("waiting for rank 1 of 3"),
        "{late}"
    );
}
