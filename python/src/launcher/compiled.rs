//! A kernel that Triton has compiled and loaded.

use flagos_core::abi;
use flagos_core::runtime::launch::{Kernel, ParameterType, Shape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::IntoPython as _;

use super::key::value_of;
use super::pack::Type;

/// A loaded kernel: `(backend, function, threads, num_ctas, shared, cooperative, pdl, types)`, where `backend` is
/// Triton's, whose kernels some vendor has to launch, and `types` are those of the parameters that are passed. A launch
/// appends two NULLs, for the global and the profiling
/// scratch memory: a kernel that needs either cannot be launched natively.
#[pyclass(frozen, module = "flagos._core")]
pub struct CompiledKernel {
    kernel: Box<dyn Kernel>,
    num_ctas: u32,
    pub(super) types: Box<[Type]>,
}

/// The number of parameters that Triton appends.
const SCRATCH: usize = 2;

#[pymethods]
impl CompiledKernel {
    #[new]
    #[allow(clippy::too_many_arguments)] // an argument each in Python
    fn new(
        py: Python<'_>,
        backend: &str,
        function: u64,
        threads: u32,
        num_ctas: u32,
        shared: u32,
        cooperative: bool,
        pdl: bool,
        types: Vec<String>,
    ) -> PyResult<Self> {
        let types: Box<[Type]> = types
            .iter()
            .map(|name| {
                Type::parse(name)
                    .ok_or_else(|| PyValueError::new_err(format!("a parameter of type {name}")))
            })
            .collect::<PyResult<_>>()?;
        let sizes = types.iter().map(|kind| kind.size());
        let parameters: Vec<_> = sizes.chain([8; SCRATCH]).map(ParameterType::Word).collect();
        let shape = Shape {
            block: [threads, 1, 1],
            cluster: [num_ctas, 1, 1],
            shared_bytes: shared,
            cooperative,
            pdl,
        };
        let launcher = abi::triton_launcher(backend).into_python(py)?;
        // SAFETY: Triton loaded it on the device that is current, and never unloads it.
        let kernel = unsafe { launcher.kernel(function, &shape, &parameters) }.into_python(py)?;
        Ok(Self {
            kernel,
            num_ctas,
            types,
        })
    }
}

impl CompiledKernel {
    /// Queues the kernel. `words` begins with the parameters that are passed, and has room for the two that Triton
    /// appends. Does not need the GIL.
    ///
    /// # Safety
    /// The kernel's memory accesses with these parameters are valid.
    #[inline]
    pub unsafe fn launch(
        &self,
        stream: u64,
        grid: [u32; 3],
        words: &mut [u64],
    ) -> flagos_core::Result<()> {
        let passed = words.len() - SCRATCH;
        words[passed..].fill(0);
        let grid = [grid[0].wrapping_mul(self.num_ctas), grid[1], grid[2]];
        // SAFETY: the caller's promise.
        unsafe { self.kernel.launch(stream, grid, words) }
    }

    /// The number of parameters, with those that Triton appends.
    #[inline]
    pub fn parameters(&self) -> usize {
        self.types.len() + SCRATCH
    }
}

/// The bits of a number as a kernel's parameter of one of Triton's types (`i32`, `fp16`, `*fp32`); `None` when
/// Triton's launcher would refuse the number.
#[pyfunction]
pub fn launch_pack(kind: &str, number: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let kind = Type::parse(kind)
        .ok_or_else(|| PyValueError::new_err(format!("`{kind}` is not the type of a parameter")))?;
    Ok(value_of(number).and_then(|value| kind.pack(value)))
}

/// The bytes of a parameter of one of Triton's types.
#[pyfunction]
pub fn launch_size(kind: &str) -> PyResult<u32> {
    let parsed = Type::parse(kind);
    let parsed = parsed
        .ok_or_else(|| PyValueError::new_err(format!("`{kind}` is not the type of a parameter")))?;
    Ok(parsed.size())
}
