//! Types of elements, as the host numbers them and as CANN does.

use std::fmt;

use flagos_core::vendors::library::*;

/// A type of elements that both the host and CANN know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum DType {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    C32,
    C64,
    C128,
}

use DType::*;

/// Of each type: its letter in the table of functions, the host's number, `aclDataType`, and the bytes of an element.
const TYPES: [(DType, u8, i32, i32, usize); 16] = [
    (F32, b'f', FLAGOS_DTYPE_FLOAT32, 0, 4),
    (F16, b'h', FLAGOS_DTYPE_FLOAT16, 1, 2),
    (Bf16, b'b', FLAGOS_DTYPE_BFLOAT16, 27, 2),
    (F64, b'd', FLAGOS_DTYPE_FLOAT64, 11, 8),
    (I8, b'1', FLAGOS_DTYPE_INT8, 2, 1),
    (I16, b'2', FLAGOS_DTYPE_INT16, 6, 2),
    (I32, b'4', FLAGOS_DTYPE_INT32, 3, 4),
    (I64, b'8', FLAGOS_DTYPE_INT64, 9, 8),
    (U8, b'u', FLAGOS_DTYPE_UINT8, 4, 1),
    (U16, b'v', FLAGOS_DTYPE_UINT16, 7, 2),
    (U32, b'w', FLAGOS_DTYPE_UINT32, 8, 4),
    (U64, b'x', FLAGOS_DTYPE_UINT64, 10, 8),
    (Bool, b'?', FLAGOS_DTYPE_BOOL, 12, 1),
    (C32, b'y', FLAGOS_DTYPE_COMPLEX32, 33, 4),
    (C64, b'c', FLAGOS_DTYPE_COMPLEX64, 16, 8),
    (C128, b'z', FLAGOS_DTYPE_COMPLEX128, 17, 16),
];

/// A kind of numbers; a later one holds those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Category {
    Bool,
    Whole,
    Real,
    Complex,
}

impl DType {
    /// The type that the host numbers so; none if CANN does not know it.
    pub(super) fn of_host(number: i32) -> Option<Self> {
        TYPES
            .iter()
            .find(|known| known.2 == number)
            .map(|known| known.0)
    }

    /// `aclDataType`.
    pub(super) fn acl(self) -> i32 {
        TYPES[self as usize].3
    }

    /// The bytes of an element.
    pub(super) fn size(self) -> usize {
        TYPES[self as usize].4
    }

    pub(super) fn category(self) -> Category {
        match self {
            Bool => Category::Bool,
            I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 => Category::Whole,
            F32 | F16 | Bf16 | F64 => Category::Real,
            C32 | C64 | C128 => Category::Complex,
        }
    }

    /// The type that holds the numbers of both, as `torch.promote_types` has it; none for pairs that torch does not
    /// promote.
    pub(super) fn promoted(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        let (low, high) = if self.category() <= other.category() {
            (self, other)
        } else {
            (other, self)
        };
        if low.category() != high.category() {
            return match (low, high) {
                (F64, C32 | C64) => Some(C128),
                (F32 | Bf16, C32) => Some(C64),
                (U16 | U32 | U64, F32 | F16 | Bf16 | F64) => Some(high),
                _ => Some(high),
            };
        }
        match high.category() {
            Category::Real => Some(if low == F64 || high == F64 { F64 } else { F32 }),
            Category::Complex => Some(if low == C128 || high == C128 {
                C128
            } else {
                C64
            }),
            Category::Bool => Some(Bool),
            Category::Whole => whole(low, high),
        }
    }

    /// The type of a `Scalar` of this category, as torch gives it before promotion.
    pub(super) fn of_number(category: Category) -> Self {
        match category {
            Category::Bool => Bool,
            Category::Whole => I64,
            Category::Real => F32,
            Category::Complex => C64,
        }
    }
}

fn whole(a: DType, b: DType) -> Option<DType> {
    let unsigned = |dtype| matches!(dtype, U8 | U16 | U32 | U64);
    let larger = if a.size() >= b.size() { a } else { b };
    match (unsigned(a), unsigned(b)) {
        (false, false) => Some(larger),
        // torch promotes none of the wide unsigned types.
        (true, true) => None,
        _ => {
            let (unsigned, signed) = if unsigned(a) { (a, b) } else { (b, a) };
            match unsigned {
                U8 if signed == I8 => Some(I16),
                U8 => Some(signed),
                _ => None,
            }
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            F32 => "float32",
            F16 => "float16",
            Bf16 => "bfloat16",
            F64 => "float64",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            U8 => "uint8",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            Bool => "bool",
            C32 => "complex32",
            C64 => "complex64",
            C128 => "complex128",
        })
    }
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DTypes(u16);

impl DTypes {
    /// Every type.
    pub(super) const ALL: Self = Self(u16::MAX);

    /// The set that these letters name; none if one names no type.
    pub(super) fn parse(letters: &str) -> Option<Self> {
        let mut set = 0;
        for letter in letters.bytes() {
            let known = TYPES.iter().find(|known| known.1 == letter)?;
            set |= 1 << known.0 as u16;
        }
        Some(Self(set))
    }

    pub(super) fn has(self, dtype: DType) -> bool {
        self.0 & (1 << dtype as u16) != 0
    }
}

impl fmt::Display for DTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = TYPES
            .iter()
            .filter(|known| self.has(known.0))
            .map(|known| known.0.to_string())
            .collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_types_and_names_each_once() {
        for (place, known) in TYPES.iter().enumerate() {
            assert_eq!(known.0 as usize, place);
            for other in &TYPES[place + 1..] {
                assert!(known.1 != other.1 && known.2 != other.2 && known.3 != other.3);
            }
        }
    }

    #[test]
    fn promotion_is_torchs() {
        for (a, b, both) in [
            (F16, Bf16, Some(F32)),
            (F16, F64, Some(F64)),
            (U8, I8, Some(I16)),
            (U8, I64, Some(I64)),
            (I32, I64, Some(I64)),
            (Bool, U8, Some(U8)),
            (I64, F16, Some(F16)),
            (F64, C64, Some(C128)),
            (F32, C64, Some(C64)),
            (U16, I32, None),
        ] {
            assert_eq!(a.promoted(b), both, "{a} {b}");
            assert_eq!(b.promoted(a), both, "{b} {a}");
        }
    }
}
