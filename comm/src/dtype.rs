//! The data types of collectives.

/// An element's type. The discriminants are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum DType {
    UInt8 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    UInt16 = 5,
    UInt32 = 6,
    UInt64 = 7,
    Float16 = 8,
    BFloat16 = 9,
    Float32 = 10,
    Float64 = 11,
    Bool = 12,
    Complex64 = 13,
    Complex128 = 14,
    Float8E4M3Fn = 15,
    Float8E5M2 = 16,
    Float8E4M3FnUz = 17,
    Float8E5M2FnUz = 18,
    /// Any other type, counted in bytes: it can be moved, but not reduced.
    Bytes = 19,
}

impl DType {
    /// Every type, by discriminant.
    pub const ALL: [Self; 20] = [
        Self::UInt8,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::UInt16,
        Self::UInt32,
        Self::UInt64,
        Self::Float16,
        Self::BFloat16,
        Self::Float32,
        Self::Float64,
        Self::Bool,
        Self::Complex64,
        Self::Complex128,
        Self::Float8E4M3Fn,
        Self::Float8E5M2,
        Self::Float8E4M3FnUz,
        Self::Float8E5M2FnUz,
        Self::Bytes,
    ];

    /// The type with this code in the C table.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Int16 | Self::UInt16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
            _ => 1,
        }
    }

    /// torch's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UInt8 => "uint8",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Bool => "bool",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Float8E4M3Fn => "float8_e4m3fn",
            Self::Float8E5M2 => "float8_e5m2",
            Self::Float8E4M3FnUz => "float8_e4m3fnuz",
            Self::Float8E5M2FnUz => "float8_e5m2fnuz",
            Self::Bytes => "bytes",
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::DType;

    #[test]
    fn codes_are_positions() {
        for (code, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            assert_eq!(DType::from_code(code as u32), Some(dtype));
        }
        assert_eq!(DType::from_code(20), None);
    }
}
