//! The types and operations of a library, which are known without a communicator.

use crate::communicator::is_gathered;
use crate::{DType, ReduceOp};

/// What a library moves and reduces, by its codes.
pub(super) trait Table: Send + Sync {
    /// The library's code of a type, if it has the type.
    fn dtype(&self, dtype: DType) -> Option<i32>;

    /// The code under which the library reduces a type by an operation, if it does.
    fn reduced_dtype(&self, dtype: DType, _op: ReduceOp) -> Option<i32> {
        self.dtype(dtype)
    }

    /// The library's code of an operation, if it has the operation.
    fn op(&self, op: ReduceOp) -> Option<i32>;
}

/// The type and the operation that reduce values of a type.
pub(super) fn by_values(dtype: DType, op: ReduceOp) -> (DType, ReduceOp) {
    match (dtype, op) {
        // A complex number is reduced as two real numbers.
        (DType::Complex64, op) => (DType::Float32, op),
        (DType::Complex128, op) => (DType::Float64, op),
        // Equal to the maximum, because the values are 0 or 1.
        (DType::Bool, ReduceOp::Sum | ReduceOp::BitOr) => (dtype, ReduceOp::Max),
        (DType::Bool, ReduceOp::Prod | ReduceOp::BitAnd) => (dtype, ReduceOp::Min),
        other => other,
    }
}

/// Whether the library has a reduction of a type, other than [`ReduceOp::PremulSum`].
pub(super) fn reduces(table: &dyn Table, op: ReduceOp, dtype: DType) -> bool {
    let (dtype, op) = by_values(dtype, op);
    table.op(op).is_some() && table.reduced_dtype(dtype, op).is_some()
}

/// The reductions of a type that a library lacks, and that cannot be composed of one that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The type.
    pub dtype: DType,
    /// Its operations.
    pub ops: Vec<ReduceOp>,
    /// Whether the type has no other operation.
    pub has_none: bool,
    /// Whether small data are gathered for them; otherwise they are refused.
    pub gathered: bool,
}

/// The reductions that a library lacks, by type.
pub(super) fn lacking(table: &dyn Table) -> Vec<Lacking> {
    let of_type = |dtype| {
        let defined = ReduceOp::ALL.into_iter().filter(|op| {
            // Averages and scaled sums are composed of sums.
            !matches!(op, ReduceOp::Avg | ReduceOp::PremulSum) && op.check(dtype).is_ok()
        });
        let (has, ops): (Vec<_>, Vec<_>) = defined.partition(|&op| reduces(table, op, dtype));
        Lacking {
            dtype,
            ops,
            has_none: has.is_empty(),
            gathered: is_gathered(dtype),
        }
    };
    let all = DType::ALL.into_iter().map(of_type);
    all.filter(|lacking| !lacking.ops.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{hccl, nccl};
    use super::*;

    /// Lines such as `uint8: sum product`, with `all` for a type that has no operation, and `refused` before it.
    fn told(table: &dyn Table) -> Vec<String> {
        let tell = |one: Lacking| {
            let names: Vec<_> = one.ops.iter().map(|op| op.name()).collect();
            let ops = if one.has_none {
                "all".to_owned()
            } else {
                names.join(" ")
            };
            let refused = if one.gathered { "" } else { "refused " };
            format!("{refused}{}: {ops}", one.dtype.name())
        };
        lacking(table).into_iter().map(tell).collect()
    }

    #[test]
    fn what_nccl_lacks() {
        // nccl.h has 8, 32 and 64 bits of whole numbers, and sum, prod, max, min and avg.
        let expected = [
            "uint8: band bor bxor",
            "int8: band bor bxor",
            "int16: all",
            "int32: band bor bxor",
            "int64: band bor bxor",
            "uint16: all",
            "uint32: band bor bxor",
            "refused uint64: band bor bxor",
            "bool: bxor",
        ];
        assert_eq!(told(&nccl::Codes), expected);
    }

    #[test]
    fn what_hccl_lacks_depends_on_the_chip() {
        // The tables of HcclAllReduce in the documentation of CANN.
        let everywhere = [
            "uint8: all",
            "int8: band bor bxor",
            "int16: product band bor bxor",
            "int32: band bor bxor",
            "int64: band bor bxor",
            "uint16: all",
            "uint32: all",
            "bfloat16: product",
            "bool: bxor",
        ];
        let wide = ["float64: all", "complex128: all", "refused uint64: all"];
        let on_a2 = told(&hccl::Codes {
            reduces_wide: false,
        });
        let on_950 = told(&hccl::Codes { reduces_wide: true });
        assert_eq!(on_a2.len(), everywhere.len() + wide.len());
        for line in everywhere {
            assert!(on_a2.iter().any(|told| told == line), "{line}: {on_a2:?}");
            assert!(on_950.iter().any(|told| told == line), "{line}: {on_950:?}");
        }
        for line in wide {
            assert!(on_a2.iter().any(|told| told == line), "{line}: {on_a2:?}");
        }
        // Only the bits of uint64 are left.
        assert_eq!(on_950.len(), everywhere.len() + 1);
        let bits = "refused uint64: band bor bxor";
        assert!(on_950.iter().any(|told| told == bits), "{on_950:?}");
    }
}
