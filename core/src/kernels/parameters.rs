//! The parameters of a launch: constants, and addresses that differ from run to run.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};
use crate::runtime::launch::{MAX_PARAMETERS, ParameterType, TensorMap};

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The same bits in every run, in the lowest `size` bytes (1, 2, 4 or 8) of `value`, whose upper bytes are the
    /// zero- or sign-extension.
    Constant {
        /// The parameter's size in bytes.
        size: u32,
        /// The parameter's bits.
        value: u64,
    },
    /// An address: one of the pointers of the run, plus an offset.
    Pointer {
        /// Which pointer.
        index: usize,
        /// Bytes behind it, modulo 2⁶⁴.
        offset: u64,
    },
    /// A tensor map whose address is one of the pointers of the run, plus an offset.
    TensorMap {
        /// Which pointer.
        index: usize,
        /// Bytes behind it, modulo 2⁶⁴.
        offset: u64,
        /// The map without its address.
        map: TensorMap,
    },
}

impl Parameter {
    /// The parameter as the kernel has it.
    const fn kind(self) -> ParameterType {
        match self {
            Self::Constant { size, .. } => ParameterType::Word(size),
            Self::Pointer { .. } => ParameterType::Word(8),
            Self::TensorMap { map, .. } => ParameterType::TensorMap(map),
        }
    }
}

/// The pointer of a run, with an offset, that goes into a word of the parameters.
#[derive(Debug, Clone, Copy)]
struct Patch {
    word: usize,
    pointer: usize,
    offset: u64,
}

/// Checked parameters, one little-endian word each.
#[derive(Debug, Clone)]
pub struct Parameters {
    words: Box<[u64]>,
    types: Box<[ParameterType]>,
    patches: Box<[Patch]>,
    /// The number of pointers a run needs.
    pointers: usize,
}

/// Room for the words of one run.
pub(super) type Words = [MaybeUninit<u64>; MAX_PARAMETERS];

impl Parameters {
    /// Checks and lays out the parameters.
    ///
    /// # Errors
    /// `InvalidArgument` for a size that no parameter has, a value that does not fit its size, or more
    /// parameters than can be passed (4 KiB).
    pub fn new(parameters: &[Parameter]) -> Result<Self> {
        if parameters.len() > MAX_PARAMETERS {
            let count = parameters.len();
            return Err(Error::invalid_argument(
                "launch_create",
                format!("{count} parameters; at most {MAX_PARAMETERS} (4 KiB) can be passed"),
            ));
        }
        let mut words = Vec::with_capacity(parameters.len());
        let mut patches = Vec::new();
        let mut pointers = 0;
        for (word, parameter) in parameters.iter().enumerate() {
            match *parameter {
                Parameter::Constant { size, value } => {
                    words.push(fitting(size, value).map_err(|error| at(error, word))?);
                }
                // The word of a tensor map is the address of its tensor.
                Parameter::Pointer { index, offset }
                | Parameter::TensorMap { index, offset, .. } => {
                    words.push(0);
                    pointers = pointers.max(index + 1);
                    patches.push(Patch {
                        word,
                        pointer: index,
                        offset,
                    });
                }
            }
        }
        Ok(Self {
            words: words.into(),
            types: parameters.iter().map(|p| p.kind()).collect(),
            patches: patches.into(),
            pointers,
        })
    }

    /// The type of each parameter.
    #[must_use]
    pub fn types(&self) -> &[ParameterType] {
        &self.types
    }

    /// The words of one run, written into `room`.
    #[inline]
    pub(super) fn fill<'r>(&self, pointers: &[u64], room: &'r mut Words) -> Result<&'r [u64]> {
        if pointers.len() < self.pointers {
            return Err(self.too_few(pointers.len()));
        }
        let count = self.words.len();
        for (to, from) in room.iter_mut().zip(&self.words) {
            to.write(*from);
        }
        for patch in &self.patches {
            room[patch.word].write(pointers[patch.pointer].wrapping_add(patch.offset));
        }
        // SAFETY: `new` limits `count` to the room there is, and the first `count` were written above.
        Ok(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count) })
    }

    #[cold]
    fn too_few(&self, given: usize) -> Error {
        let needed = self.pointers;
        Error::invalid_argument(
            "launch_run",
            format!("{given} pointers were given; the launch was made with {needed}"),
        )
    }
}

#[cold]
fn at(error: Error, parameter: usize) -> Error {
    error.with_context("parameter", parameter)
}

/// The lowest `size` bytes of `value`, if the upper bytes only extend them.
fn fitting(size: u32, value: u64) -> Result<u64> {
    let wrong = |message: String| Error::invalid_argument("launch_create", message);
    if !matches!(size, 1 | 2 | 4 | 8) {
        let message = format!("a parameter of {size} bytes");
        return Err(wrong(message).with_hint("1, 2, 4 and 8 are possible"));
    }
    let unused = 64 - 8 * size;
    let low = value << unused >> unused;
    let signed = ((value << unused) as i64 >> unused) as u64;
    if value != low && value != signed {
        return Err(wrong(format!("{value:#x} does not fit into {size} bytes")));
    }
    Ok(low)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(parameters: &[Parameter], pointers: &[u64]) -> Result<Vec<u64>> {
        let mut room = [MaybeUninit::uninit(); MAX_PARAMETERS];
        let words = Parameters::new(parameters)?
            .fill(pointers, &mut room)?
            .to_vec();
        Ok(words)
    }

    fn constant(size: u32, value: u64) -> Parameter {
        Parameter::Constant { size, value }
    }

    fn pointer(index: usize, offset: u64) -> Parameter {
        Parameter::Pointer { index, offset }
    }

    #[test]
    fn pointers_are_patched_and_constants_stay() {
        let parameters = [
            pointer(1, 16),
            constant(4, 7),
            pointer(0, 0),
            pointer(1, 0),
            constant(1, 1),
        ];
        let words = filled(&parameters, &[0x1000, 0x2000]).expect("filled");
        assert_eq!(words, [0x2010, 7, 0x1000, 0x2000, 1]);
        let laid_out = Parameters::new(&parameters).expect("right");
        assert_eq!(laid_out.types(), [8, 4, 8, 8, 1].map(ParameterType::Word));
    }

    #[test]
    fn a_run_with_too_few_pointers_is_refused() {
        let error = filled(&[pointer(2, 0)], &[1, 2]).expect_err("two of three");
        assert!(
            error.to_string().contains("2 pointers were given"),
            "{error}"
        );
        assert!(error.to_string().contains("made with 3"), "{error}");
        assert_eq!(
            filled(&[pointer(2, 0)], &[1, 2, 3, 4]).expect("filled"),
            [3]
        );
        assert_eq!(filled(&[constant(8, 5)], &[]).expect("filled"), [5]);
    }

    #[test]
    fn values_fit_their_size_extended_either_way() {
        assert_eq!(
            filled(&[constant(1, 255)], &[]).expect("zero-extended"),
            [255]
        );
        assert_eq!(filled(&[constant(1, u64::MAX)], &[]).expect("-1"), [255]);
        assert_eq!(
            filled(&[constant(4, (-5_i64) as u64)], &[]).expect("-5"),
            [0xffff_fffb]
        );
        for (size, value) in [(1, 256), (2, 1 << 16), (4, 1 << 32), (1, (-200_i64) as u64)] {
            let error = filled(&[constant(8, 0), constant(size, value)], &[]).expect_err("too big");
            assert!(error.to_string().contains("does not fit"), "{error}");
            assert_eq!(error.context("parameter"), Some("1"));
        }
        for size in [0, 3, 5, 16] {
            let error = filled(&[constant(size, 0)], &[]).expect_err("no such size");
            assert!(error.to_string().contains("1, 2, 4 and 8"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_passed_is_refused() {
        let all = vec![constant(8, 3); MAX_PARAMETERS];
        assert_eq!(filled(&all, &[]).expect("4 KiB").len(), MAX_PARAMETERS);
        let more = vec![constant(8, 3); MAX_PARAMETERS + 1];
        assert!(filled(&more, &[]).is_err());
    }

    proptest! {
        #[test]
        fn every_word_is_what_its_parameter_says(
            parameters in prop::collection::vec(
                prop_oneof![
                    any::<u64>().prop_map(|value| Parameter::Constant { size: 8, value }),
                    (0_usize..4, any::<u64>())
                        .prop_map(|(index, offset)| Parameter::Pointer { index, offset }),
                ],
                0..64,
            ),
            pointers in prop::array::uniform4(any::<u64>()),
        ) {
            let expected: Vec<_> = parameters
                .iter()
                .map(|parameter| match *parameter {
                    Parameter::Constant { value, .. } => value,
                    Parameter::Pointer { index, offset } => pointers[index].wrapping_add(offset),
                    Parameter::TensorMap { .. } => unreachable!("none was drawn"),
                })
                .collect();
            prop_assert_eq!(filled(&parameters, &pointers).expect("filled"), expected);
        }
    }
}
