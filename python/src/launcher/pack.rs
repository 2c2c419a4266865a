//! Python's numbers as kernel parameters, converted as Triton's generated launchers convert them
//! (`make_launcher` in `triton/backends/nvidia/driver.py`). A number that they refuse or would wrap becomes
//! `None`, so that the original path raises its own error.

/// The value of an argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// The address of a tensor.
    Address(u64),
    /// An `int` within 64 bits, signed.
    Int(i64),
    /// An `int` from 2⁶³ to 2⁶⁴ - 1.
    Large(u64),
    /// A `float`.
    Float(f64),
    /// A `bool`.
    Bool(bool),
    /// `None`.
    None,
    /// A value that is not passed to kernels.
    Other,
}

/// The type of a parameter in a compiled kernel's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `*…`.
    Pointer,
    /// `i8` and `i1`, `i16`, `i32`, `i64`, by the number of bytes.
    Signed(u8),
    /// `u8` and `u1`, `u16`, `u32`, `u64`, by the number of bytes.
    Unsigned(u8),
    /// `fp16`.
    Half,
    /// `bf16`.
    Brain,
    /// `fp32` and `f32`.
    Single,
    /// `fp64`.
    Double,
}

impl Type {
    /// The type of this name in a signature; `None` for tensor descriptors and tuples, which native launches do
    /// not support.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            _ if name.starts_with('*') => Self::Pointer,
            "i1" | "i8" => Self::Signed(1),
            "i16" => Self::Signed(2),
            "i32" => Self::Signed(4),
            "i64" => Self::Signed(8),
            "u1" | "u8" => Self::Unsigned(1),
            "u16" => Self::Unsigned(2),
            "u32" => Self::Unsigned(4),
            "u64" => Self::Unsigned(8),
            "fp16" => Self::Half,
            "bf16" => Self::Brain,
            "fp32" | "f32" => Self::Single,
            "fp64" => Self::Double,
            _ => return None,
        })
    }

    /// Bytes of the parameter.
    pub const fn size(self) -> u32 {
        match self {
            Self::Signed(bytes) | Self::Unsigned(bytes) => bytes as u32,
            Self::Half | Self::Brain => 2,
            Self::Single => 4,
            Self::Pointer | Self::Double => 8,
        }
    }

    /// The parameter's bits, zero-extended.
    #[inline]
    pub fn pack(self, value: Value) -> Option<u64> {
        match self {
            Self::Pointer => match value {
                Value::Address(address) | Value::Large(address) => Some(address),
                Value::Int(number) => u64::try_from(number).ok(),
                Value::Bool(flag) => Some(u64::from(flag)),
                Value::None => Some(0),
                Value::Float(_) | Value::Other => None,
            },
            Self::Signed(bytes) => signed(bytes, integer(value)?),
            Self::Unsigned(bytes) => match (bytes, value) {
                (8, Value::Large(number)) => Some(number),
                _ => unsigned(bytes, integer(value)?),
            },
            Self::Half => half(float(value)?).map(u64::from),
            // The upper half of a single, truncated and not rounded, as by Triton.
            Self::Brain => Some(u64::from((float(value)? as f32).to_bits() >> 16)),
            Self::Single => Some(u64::from((float(value)? as f32).to_bits())),
            Self::Double => Some(float(value)?.to_bits()),
        }
    }
}

fn integer(value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Bool(flag) => Some(i64::from(flag)),
        _ => None,
    }
}

fn float(value: Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(number),
        _ => integer(value).map(|number| number as f64),
    }
}

fn signed(bytes: u8, number: i64) -> Option<u64> {
    match bytes {
        // Triton's format for a signed byte is "b", which takes 0 to 255.
        1 => u8::try_from(number).ok().map(u64::from),
        2 => i16::try_from(number).ok().map(|n| u64::from(n as u16)),
        4 => i32::try_from(number).ok().map(|n| u64::from(n as u32)),
        _ => Some(number as u64),
    }
}

fn unsigned(bytes: u8, number: i64) -> Option<u64> {
    let number = u64::try_from(number).ok()?;
    (bytes == 8 || number >> (8 * bytes) == 0).then_some(number)
}

/// IEEE 754 binary16, rounded to nearest, ties to even; `None` where a finite number has no finite half.
fn half(number: f64) -> Option<u16> {
    let bits = number.to_bits();
    let sign = ((bits >> 48) & 0x8000) as u16;
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let fraction = bits & ((1 << 52) - 1);
    if exponent == 1024 {
        // Infinity, or the quiet NaN for every NaN.
        return Some(sign | 0x7c00 | if fraction == 0 { 0 } else { 0x200 });
    }
    // The significand with its leading one, and the number of its bits that a half has no room for.
    let significand = fraction | 1 << 52;
    let dropped = if exponent < -14 {
        42 + (-14 - exponent)
    } else {
        42
    };
    if dropped > 53 {
        return Some(sign);
    }
    let rounded = significand >> dropped;
    let rest = significand & ((1_u64 << dropped) - 1);
    let tie = 1_u64 << (dropped - 1);
    let up = rest > tie || (rest == tie && rounded & 1 == 1);
    let rounded = rounded + u64::from(up);
    // A carry out of the fraction correctly raises the exponent.
    let biased = if exponent < -14 {
        0
    } else {
        (exponent + 14) as u64
    };
    let magnitude = (biased << 10) + rounded;
    (magnitude < 0x7c00).then_some(sign | magnitude as u16)
}
