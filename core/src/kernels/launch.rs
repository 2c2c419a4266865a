//! One launch of a kernel, which can be repeated with other pointers.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};
use crate::runtime::launch::{Kernel, Launcher, MAX_PARAMETERS, Shape};

use super::parameters::{Parameter, Parameters};

/// The description of a launch.
#[derive(Debug, Clone)]
pub struct LaunchSpec<'p> {
    /// The function's handle in the vendor's own library.
    pub function: u64,
    /// Blocks along each axis, counted singly and not in clusters.
    pub grid: [u32; 3],
    /// Block, cluster, shared memory and attributes.
    pub shape: Shape,
    /// Every parameter in order.
    pub parameters: &'p [Parameter],
}

/// A checked launch. Several threads may run it at once.
#[derive(Debug)]
pub struct Launch {
    kernel: Box<dyn Kernel>,
    grid: [u32; 3],
    parameters: Parameters,
}

impl Launch {
    /// Checks the launch, also against the function's parameters where the vendor tells them.
    ///
    /// # Errors
    /// `InvalidArgument` for a launch that the vendor would refuse, and for parameters whose number or sizes are not
    /// the function's; otherwise those of [`Launcher::kernel`].
    ///
    /// # Safety
    /// As [`Launcher::kernel`].
    pub unsafe fn new(launcher: &dyn Launcher, spec: &LaunchSpec<'_>) -> Result<Self> {
        let parameters = Parameters::new(spec.parameters)?;
        check_grid(spec.grid, spec.shape.cluster)?;
        // SAFETY: the caller's promise.
        let kernel = unsafe { launcher.kernel(spec.function, &spec.shape, parameters.types())? };
        kernel.check_grid(spec.grid)?;
        Ok(Self {
            kernel,
            grid: spec.grid,
            parameters,
        })
    }

    /// Queues the kernel on a stream (its handle in the vendor's own library, 0 for the default stream) with these
    /// pointers. Takes no lock and allocates nothing.
    ///
    /// # Errors
    /// `InvalidArgument` when there are fewer pointers than the launch was made with; otherwise the
    /// vendor's.
    ///
    /// # Safety
    /// The stream is alive, and the kernel's accesses to the memory at these pointers are valid.
    #[inline]
    pub unsafe fn run(&self, stream: u64, pointers: &[u64]) -> Result<()> {
        let mut room = [MaybeUninit::uninit(); MAX_PARAMETERS];
        let words = self.parameters.fill(pointers, &mut room)?;
        // SAFETY: the caller's promise, and the words are those of the function.
        unsafe { self.kernel.launch(stream, self.grid, words) }
    }
}

/// Fails for a grid that no vendor launches.
fn check_grid(grid: [u32; 3], cluster: [u32; 3]) -> Result<()> {
    let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
    if grid.contains(&0) {
        return wrong(format!("the grid {grid:?} has no blocks"));
    }
    if (0..3).any(|axis| cluster[axis] != 0 && grid[axis] % cluster[axis] != 0) {
        return wrong(format!(
            "the grid {grid:?} is not a multiple of the cluster {cluster:?}"
        ));
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn grids_have_blocks_and_whole_clusters() {
        assert!(check_grid([1, 1, 1], [1, 1, 1]).is_ok());
        assert!(check_grid([8, 1, 1], [4, 1, 1]).is_ok());
        for (grid, cluster, says) in [
            ([0, 1, 1], [1, 1, 1], "no blocks"),
            ([6, 1, 1], [4, 1, 1], "multiple"),
        ] {
            let error = check_grid(grid, cluster).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
