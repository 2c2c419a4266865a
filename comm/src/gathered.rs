//! Counts of the reductions that libraries lack and for which callers gather the data of all ranks.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::Serialize;

use crate::{DType, ReduceOp};

/// A reduction that a library lacks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reduction {
    /// The library, with its version if it tells it.
    pub library: String,
    /// The operation's name.
    pub op: &'static str,
    /// The type's name.
    pub dtype: &'static str,
}

/// The calls that were gathered for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Calls, as they were queued: a graph that replays one adds none.
    pub calls: u64,
    /// The data of all ranks together, which [`GATHERED`](crate::communicator::GATHERED) bounds for a call.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: usize) {
        self.calls += 1;
        self.bytes += bytes as u64;
    }
}

/// The counts of the process, which outlive its groups.
static PROCESS: Mutex<BTreeMap<Reduction, Count>> = Mutex::new(BTreeMap::new());

/// The counts of one communicator, by operation and type.
#[derive(Debug, Default)]
pub struct Gathered(Mutex<BTreeMap<String, Count>>);

impl Gathered {
    /// Counts a call here and for the process. Returns whether it is the first of its kind here.
    pub fn count(&self, library: &str, op: ReduceOp, dtype: DType, bytes: usize) -> bool {
        let (op, dtype) = (op.name(), dtype.name());
        let library = library.to_owned();
        let reduction = Reduction { library, op, dtype };
        PROCESS.lock().entry(reduction).or_default().add(bytes);
        let mut own = self.0.lock();
        let count = own.entry(format!("{op} of {dtype}")).or_default();
        count.add(bytes);
        count.calls == 1
    }

    /// The counts, by texts such as `sum of float64`.
    pub fn all(&self) -> BTreeMap<String, Count> {
        self.0.lock().clone()
    }
}

/// The counts of the process.
#[must_use]
pub fn of_process() -> BTreeMap<Reduction, Count> {
    PROCESS.lock().clone()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_process_keeps_what_its_communicators_counted() {
        let library = "libcounted.so"; // which no other test has
        for bytes in [8, 24] {
            let communicator = Gathered::default();
            assert!(communicator.count(library, ReduceOp::Sum, DType::Float64, bytes));
            assert!(!communicator.count(library, ReduceOp::Sum, DType::Float64, bytes));
            assert!(communicator.count(library, ReduceOp::Max, DType::Float64, bytes));
            let twice = Count {
                calls: 2,
                bytes: 2 * bytes as u64,
            };
            assert_eq!(communicator.all()["sum of float64"], twice);
        }
        let counted: Vec<_> = of_process()
            .into_iter()
            .filter(|(reduction, _)| reduction.library == library)
            .map(|(reduction, count)| (reduction.op, reduction.dtype, count.calls, count.bytes))
            .collect();
        let expected = [("max", "float64", 2, 32), ("sum", "float64", 4, 64)];
        assert_eq!(counted, expected);
    }
}
