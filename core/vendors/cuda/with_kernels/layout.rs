//! The loop over the elements of a call: the dimensions of all operands together, as few as possible.

use flagos_core::{Error, Result};

/// The error of a call that these kernels do not compute: the host does.
pub fn decline<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::unsupported("run", reason))
}

/// The sizes of a tensor along its dimensions, and its strides, in elements.
pub type View<'v> = (&'v [i64], &'v [i64]);

/// The dimensions that a kernel loops over.
pub const DIMS: usize = 4;

/// The elements of the result, and where the operands have theirs.
#[derive(Debug, PartialEq, Eq)]
pub struct Loop {
    /// The number of elements.
    pub elements: u32,
    /// Elements along each dimension, the last one the innermost; 1 for those that are left over.
    pub sizes: [u32; DIMS],
    /// Of each tensor, the result first, the elements from one index to the next along each dimension.
    pub strides: Vec<[i64; DIMS]>,
}

impl Loop {
    /// The loop over a result, along which the other tensors are repeated as broadcasting has it.
    pub fn new(result: View<'_>, others: &[View<'_>]) -> Result<Self> {
        let product = result
            .0
            .iter()
            .try_fold(1, |product: i64, size| product.checked_mul(*size));
        let elements = product.and_then(|product| u32::try_from(product).ok());
        let Some(elements @ 0..=0x7fff_ffff) = elements else {
            return decline(format!("the sizes {:?}", result.0));
        };
        let rank = result.0.len();
        // The strides of a dimension of the result, for every tensor; from the innermost dimension outwards.
        let mut dims: Vec<(i64, Vec<i64>)> = Vec::new();
        for from_end in 1..=rank {
            let size = result.0[rank - from_end];
            let mut strides = vec![result.1[rank - from_end]];
            for other in others {
                strides.push(stride(*other, from_end, size)?);
            }
            if size == 1 {
                continue;
            }
            match dims.last_mut() {
                Some((inner, known)) if continues(*inner, known, &strides) => *inner *= size,
                _ => dims.push((size, strides)),
            }
        }
        if dims.len() > DIMS {
            return decline(format!("{} dimensions", dims.len()));
        }
        let mut sizes = [1; DIMS];
        let mut strides = vec![[0; DIMS]; 1 + others.len()];
        for (index, (size, own)) in dims.into_iter().enumerate() {
            let dim = DIMS - 1 - index;
            // No more than there are elements, unless there are none, and then nothing is launched.
            sizes[dim] = u32::try_from(size).unwrap_or(u32::MAX);
            for (strides, stride) in strides.iter_mut().zip(own) {
                strides[dim] = stride;
            }
        }
        Ok(Self {
            elements,
            sizes,
            strides,
        })
    }
}

/// The stride of a tensor along a dimension of the result, counted from the last one.
fn stride((sizes, strides): View<'_>, from_end: usize, size: i64) -> Result<i64> {
    let Some(dim) = sizes.len().checked_sub(from_end) else {
        return Ok(0);
    };
    match sizes[dim] {
        own if own == size => Ok(strides[dim]),
        1 => Ok(0),
        own => decline(format!("{own} elements are not repeated to {size}")),
    }
}

/// Whether a dimension goes on where the one inside of it ends, for every tensor.
fn continues(inner: i64, inner_strides: &[i64], strides: &[i64]) -> bool {
    let mut both = inner_strides.iter().zip(strides);
    both.all(|(inside, outside)| inside * inner == *outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_continue_are_one() {
        let (sizes, strides) = ([2, 3, 4], [12, 4, 1]);
        let whole = Loop::new((&sizes, &strides), &[(&sizes, &strides)]);
        let whole = whole.expect("a loop");
        assert_eq!((whole.elements, whole.sizes), (24, [1, 1, 1, 24]));
        assert_eq!(whole.strides, [[0, 0, 0, 1]; 2]);
        // Transposed, and repeated along the first dimension.
        let loop_ = Loop::new((&sizes, &strides), &[(&[3, 4], &[1, 3])]);
        let loop_ = loop_.expect("a loop");
        assert_eq!(loop_.sizes, [1, 2, 3, 4]);
        assert_eq!(loop_.strides, [[0, 12, 4, 1], [0, 0, 1, 3]]);
    }

    #[test]
    fn nothing_and_one_are_loops_too() {
        let one = Loop::new((&[], &[]), &[(&[1], &[7])]).expect("a loop");
        assert_eq!((one.elements, one.sizes), (1, [1; DIMS]));
        let none = Loop::new((&[0, 5], &[5, 1]), &[]).expect("a loop");
        assert_eq!(none.elements, 0);
    }

    #[test]
    fn what_does_not_fit_is_declined() {
        let sizes = [2; 5];
        let strides = [160, 80, 40, 20, 10].map(|stride| stride / 5);
        assert!(
            Loop::new((&sizes, &strides), &[]).is_ok(),
            "it is one dimension"
        );
        let apart = [1000, 300, 70, 20, 2];
        assert!(Loop::new((&sizes, &apart), &[]).is_err(), "five dimensions");
        assert!(
            Loop::new((&[3], &[1]), &[(&[2], &[1])]).is_err(),
            "no broadcasting"
        );
        assert!(
            Loop::new((&[1 << 31], &[1]), &[]).is_err(),
            "too many elements"
        );
        assert!(Loop::new((&[1 << 40, 1 << 40], &[1, 1]), &[]).is_err());
    }
}
