//! Recordings: what one call of an implementation did on the device, read from the words of a recorder.
//!
//! The words are those that `torch_fl/python_kernels/capture.py` writes: the sizes of the blocks of memory
//! that the call allocated, its steps in order, and its results. Every list begins with its length.

use crate::error::{Error, Result};
use crate::runtime::launch::{MAX_RANK, Shape, TENSOR_MAP_BYTES, TensorMap};

use super::parameters::Parameter;

/// One recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The blocks that the call allocated.
    pub blocks: Vec<Block>,
    /// Its work, in order.
    pub steps: Vec<Step>,
    /// The tensors it returned, in order.
    pub results: Vec<Output>,
}

/// Memory that the call allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Bytes.
    pub nbytes: i64,
    /// Whether some result lies in it.
    pub returned: bool,
}

/// One piece of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A launch of a kernel.
    Launch(RecordedLaunch),
    /// Every element of `target` becomes `value`.
    Fill {
        /// The tensor that is written.
        target: Place,
        /// The value, converted to the tensor's dtype.
        value: Number,
    },
    /// `target` becomes a copy of `source`, converted to its dtype.
    Copy {
        /// The tensor that is written.
        target: Place,
        /// The tensor that is read.
        source: Place,
    },
}

/// A launch, with the memory behind each of its pointers.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedLaunch {
    /// The function's handle in the vendor's own library.
    pub function: u64,
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Block, cluster and shared memory.
    pub shape: Shape,
    /// Bits `FLAGOS_LAUNCH_*`.
    pub flags: u32,
    /// Every parameter in order. Pointers are numbered as in `memories`.
    pub parameters: Vec<Parameter>,
    /// The memory of each pointer, as in [`Place::memory`].
    pub memories: Vec<i64>,
}

/// A tensor in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `i`: the memory of the i-th tensor among the arguments; `-1 - k`: the k-th block.
    pub memory: i64,
    /// Bytes from the argument's first element, or from the beginning of the block.
    pub offset: i64,
    /// The framework's number of the dtype.
    pub dtype: u32,
    /// Elements along each dimension.
    pub sizes: Vec<i64>,
    /// Elements from one index to the next along each dimension.
    pub strides: Vec<i64>,
}

/// A number to fill memory with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
}

/// A tensor that the call returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// An argument itself.
    Argument(usize),
    /// A new tensor in a block.
    Made(Place),
}

/// The memory that a recording may name, and the known dtypes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Tensors among the arguments.
    pub inputs: usize,
    /// Numbers of dtypes are below this.
    pub dtypes: u32,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// `InvalidArgument` for words that are no recording within these limits.
    pub fn read(words: &[i64], limits: Limits) -> Result<Self> {
        let mut reader = Reader {
            words,
            at: 0,
            blocks: 0,
            limits,
        };
        let mut blocks = reader.list(|reader| {
            let nbytes = reader.next()?;
            Ok(Block {
                nbytes,
                returned: false,
            })
        })?;
        reader.blocks = blocks.len();
        let steps = reader.list(Reader::step)?;
        let results = reader.list(Reader::output)?;
        if reader.at != words.len() {
            let (all, read) = (words.len(), reader.at);
            return Err(wrong(format!("it has {all} words, and ends after {read}")));
        }
        for result in &results {
            if let Output::Made(place) = result {
                blocks[(-1 - place.memory) as usize].returned = true;
            }
        }
        Ok(Self {
            blocks,
            steps,
            results,
        })
    }
}

#[cold]
fn wrong(message: String) -> Error {
    Error::invalid_argument("recording_read", message)
}

/// More than any list of a recording has.
const MOST: u64 = 1 << 20;

struct Reader<'w> {
    words: &'w [i64],
    at: usize,
    blocks: usize,
    limits: Limits,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<i64> {
        let Some(&word) = self.words.get(self.at) else {
            return Err(wrong(format!("it ends too early, after {} words", self.at)));
        };
        self.at += 1;
        Ok(word)
    }

    /// A number up to `most`.
    fn number(&mut self, most: u64) -> Result<u64> {
        let word = self.next()?;
        match u64::try_from(word) {
            Ok(number) if number <= most => Ok(number),
            _ => Err(wrong(format!(
                "{word} at word {}; at most {most} is possible",
                self.at - 1
            ))),
        }
    }

    fn unsigned(&mut self) -> Result<u32> {
        self.number(u64::from(u32::MAX)).map(|number| number as u32)
    }

    fn axes(&mut self) -> Result<[u32; 3]> {
        Ok([self.unsigned()?, self.unsigned()?, self.unsigned()?])
    }

    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.number(MOST)?;
        (0..count).map(|_| element(self)).collect()
    }

    fn memory(&mut self) -> Result<i64> {
        let memory = self.next()?;
        let (inputs, blocks) = (self.limits.inputs, self.blocks);
        if memory < inputs as i64 && memory >= -(blocks as i64) {
            return Ok(memory);
        }
        Err(wrong(format!(
            "it names memory {memory} of {inputs} arguments and {blocks} blocks"
        )))
    }

    fn place(&mut self) -> Result<Place> {
        let place = Place {
            memory: self.memory()?,
            offset: self.next()?,
            dtype: self.number(u64::from(self.limits.dtypes.saturating_sub(1)))? as u32,
            sizes: self.list(Self::next)?,
            strides: self.list(Self::next)?,
        };
        if place.sizes.len() != place.strides.len() {
            let (sizes, strides) = (place.sizes.len(), place.strides.len());
            return Err(wrong(format!(
                "a tensor has {sizes} sizes and {strides} strides"
            )));
        }
        Ok(place)
    }

    fn step(&mut self) -> Result<Step> {
        Ok(match self.number(2)? {
            0 => Step::Launch(self.launch()?),
            1 => Step::Fill {
                target: self.place()?,
                value: match (self.number(2)?, self.next()?) {
                    (0, word) => Number::Integer(word),
                    (1, word) => Number::Double(f64::from_bits(word as u64)),
                    (_, word) => Number::Bool(word != 0),
                },
            },
            _ => Step::Copy {
                target: self.place()?,
                source: self.place()?,
            },
        })
    }

    fn output(&mut self) -> Result<Output> {
        let argument = self.next()?;
        let inputs = self.limits.inputs;
        if let Ok(index) = usize::try_from(argument) {
            if index < inputs {
                return Ok(Output::Argument(index));
            }
            return Err(wrong(format!("it returns argument {index} of {inputs}")));
        }
        let place = self.place()?;
        if place.memory >= 0 {
            return Err(wrong("it returns a view of an argument".into()));
        }
        Ok(Output::Made(place))
    }

    fn launch(&mut self) -> Result<RecordedLaunch> {
        let function = self.next()? as u64;
        let grid = self.axes()?;
        let shape = Shape {
            block: self.axes()?,
            cluster: self.axes()?,
            shared_bytes: self.unsigned()?,
            ..Shape::default()
        };
        let flags = self.unsigned()?;
        let mut memories = Vec::new();
        let parameters = self.list(|reader| reader.parameter(&mut memories))?;
        Ok(RecordedLaunch {
            function,
            grid,
            shape,
            flags,
            parameters,
            memories,
        })
    }

    /// Its size, its kind (0 constant, 1 pointer, 2 tensor map), the memory unless it is a constant, its
    /// value or offset, and the map if it is one.
    fn parameter(&mut self, memories: &mut Vec<i64>) -> Result<Parameter> {
        let size = self.unsigned()?;
        let kind = self.number(2)?;
        let expected = [size, 8, TENSOR_MAP_BYTES][kind as usize];
        if size != expected {
            return Err(wrong(format!(
                "a pointer or a tensor map of {size} bytes; it has {expected}"
            )));
        }
        let index = memories.len();
        if kind != 0 {
            memories.push(self.memory()?);
        }
        let value = self.next()? as u64;
        Ok(match kind {
            0 => Parameter::Constant { size, value },
            1 => Parameter::Pointer {
                index,
                offset: value,
            },
            _ => Parameter::TensorMap {
                index,
                offset: value,
                map: self.map()?,
            },
        })
    }

    fn map(&mut self) -> Result<TensorMap> {
        let mut map = TensorMap {
            data_type: self.unsigned()?,
            rank: self.number(MAX_RANK as u64)? as u32,
            shape: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            block: [0; MAX_RANK],
            swizzle: 0,
            fills_with_nan: false,
        };
        for axis in 0..map.rank as usize {
            map.shape[axis] = self.next()? as u64;
            map.strides[axis] = self.next()? as u64;
            map.block[axis] = self.unsigned()?;
        }
        map.swizzle = self.unsigned()?;
        map.fills_with_nan = self.number(1)? != 0;
        Ok(map)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        inputs: 2,
        dtypes: 30,
    };

    /// Two blocks; a launch with a constant, a pointer to argument 1 and a tensor map over block 1; a fill of
    /// block 0 with 2.5; a copy of argument 0 into block 1; returned are block 1 and argument 0.
    fn words() -> Vec<i64> {
        let place = |memory: i64| vec![memory, 16, 6, 2, 3, 4, 2, 4, 1];
        let mut words = vec![2, 512, 1024, 3];
        words.extend([0, 77, 8, 4, 2, 128, 1, 1, 1, 1, 1, 4096, 2, 3]);
        words.extend([4, 0, -1]);
        words.extend([8, 1, 1, 24]);
        words.extend([128, 2, -2, 0, 7, 2, 64, 2, 8, 32, 128, 16, 3, 1]);
        words.push(1);
        words.extend(place(-1));
        words.extend([1, 2.5_f64.to_bits() as i64]);
        words.push(2);
        words.extend(place(-2));
        words.extend(place(0));
        words.extend([2, -1]);
        words.extend(place(-2));
        words.push(0);
        words
    }

    #[test]
    fn a_recording_is_read() {
        let recording = Recording::read(&words(), LIMITS).expect("a recording");
        let returned: Vec<_> = recording.blocks.iter().map(|b| b.returned).collect();
        assert_eq!(returned, [false, true]);
        let [
            Step::Launch(launch),
            Step::Fill { target, value },
            Step::Copy { source, .. },
        ] = &recording.steps[..]
        else {
            panic!("{:?}", recording.steps);
        };
        assert_eq!(
            (launch.function, launch.grid, launch.flags),
            (77, [8, 4, 2], 2)
        );
        assert_eq!(
            (launch.shape.block, launch.shape.shared_bytes),
            ([128, 1, 1], 4096)
        );
        assert_eq!(launch.memories, [1, -2]);
        assert_eq!(
            launch.parameters[..2],
            [
                Parameter::Constant {
                    size: 4,
                    value: u64::MAX
                },
                Parameter::Pointer {
                    index: 0,
                    offset: 24
                },
            ]
        );
        let Parameter::TensorMap { index: 1, map, .. } = launch.parameters[2] else {
            panic!("{:?}", launch.parameters);
        };
        assert_eq!((map.rank, map.block[..2].to_vec()), (2, vec![8, 16]));
        assert_eq!((target.memory, *value), (-1, Number::Double(2.5)));
        assert_eq!((source.memory, &source.sizes[..]), (0, &[3, 4][..]));
        assert_eq!(recording.results[1], Output::Argument(0));
    }

    #[test]
    fn what_is_missing_or_left_over_is_an_error() {
        let words = words();
        for end in 0..words.len() {
            assert!(
                Recording::read(&words[..end], LIMITS).is_err(),
                "{end} words"
            );
        }
        let longer = [&words[..], &[0]].concat();
        let error = Recording::read(&longer, LIMITS).expect_err("longer");
        assert!(error.to_string().contains("ends after"), "{error}");
    }

    #[test]
    fn other_memory_dtypes_and_results_are_refused() {
        let words = words();
        let with = |limits| {
            Recording::read(&words, limits)
                .expect_err("refused")
                .to_string()
        };
        assert!(
            with(Limits {
                inputs: 1,
                ..LIMITS
            })
            .contains("memory 1 of 1 arguments")
        );
        assert!(
            with(Limits {
                dtypes: 6,
                ..LIMITS
            })
            .contains("at most 5")
        );
        let returns_input = [0, 0, 1, -1, 0, 0, 6, 0, 0];
        assert!(
            Recording::read(&returns_input, LIMITS).is_err(),
            "a view of an argument"
        );
        assert!(
            Recording::read(&[0, 0, 1, 2], LIMITS).is_err(),
            "an argument beyond"
        );
    }
}
