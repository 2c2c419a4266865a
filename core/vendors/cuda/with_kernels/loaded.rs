//! The kernels, loaded on a device by the first call for it.

use std::ffi::CString;
use std::sync::OnceLock;

use flagos_core::runtime::Vendor;
use flagos_core::runtime::launch::{Kernel, ParameterType, Shape};
use flagos_core::{Error, Result};

use crate::layout::DIMS;
use crate::ptx::{ELEMENTWISE, Elementwise, MM, THREADS, module};

/// The most devices of CUDA that a process has.
const DEVICES: usize = 64;

/// The kernels of one device. They stay loaded, because its primary context does.
pub struct Loaded {
    elementwise: Vec<Box<dyn Kernel>>,
    mm: Box<dyn Kernel>,
}

impl Loaded {
    /// The kernels of a device.
    pub fn of(vendor: &dyn Vendor, device: usize) -> Result<&'static Self> {
        static LOADED: [OnceLock<Loaded>; DEVICES] = [const { OnceLock::new() }; DEVICES];
        let slot = LOADED.get(device).ok_or_else(|| {
            Error::unsupported("run", format!("device {device}: {DEVICES} are supported"))
        })?;
        if let Some(loaded) = slot.get() {
            return Ok(loaded);
        }
        let loaded = Self::load(vendor, device)?;
        // Another thread may have been faster: then its kernels stay.
        Ok(slot.get_or_init(|| loaded))
    }

    fn load(vendor: &dyn Vendor, device: usize) -> Result<Self> {
        let module = vendor.load_module(device, module().as_bytes())?;
        let shape = Shape {
            block: [THREADS, 1, 1],
            ..Shape::default()
        };
        let kernel = |name: &str, sizes: Vec<u32>| {
            let types: Vec<_> = sizes.into_iter().map(ParameterType::Word).collect();
            let name = CString::new(name)
                .map_err(|_| Error::internal("run", "the name of a kernel has a NUL"))?;
            module.kernel(&name, &shape, &types)
        };
        let elementwise = ELEMENTWISE
            .iter()
            .map(|one| kernel(one.name, parameters(one)));
        let mut product = vec![4; 3];
        product.extend([8; 9]);
        Ok(Self {
            elementwise: elementwise.collect::<Result<_>>()?,
            mm: kernel(MM, product)?,
        })
    }

    /// An element-wise kernel, with its place in [`ELEMENTWISE`].
    pub fn elementwise(&self, index: usize) -> &dyn Kernel {
        &*self.elementwise[index]
    }

    /// The product of matrices.
    pub fn mm(&self) -> &dyn Kernel {
        &*self.mm
    }
}

/// Bytes of each parameter of an element-wise kernel.
fn parameters(kernel: &Elementwise) -> Vec<u32> {
    let tensors = 1 + kernel.operands.iter().filter(|&&tensor| tensor).count();
    let numbers = kernel.operands.len() + 1 - tensors + usize::from(kernel.alpha);
    let mut sizes = vec![4; 1 + DIMS];
    sizes.extend(vec![8; tensors * (1 + DIMS)]);
    sizes.extend(vec![4; numbers]);
    sizes
}
