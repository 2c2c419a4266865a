//! The memory that kernels reach.

use flagos_core::runtime::launch::Launcher;

use super::outcome::Reason;
use super::tensor::Tensor;

/// The way to the addresses by which kernels reach tensors.
pub struct Memory {
    /// torch's `DeviceType` of tensors whose own address kernels use.
    device_type: i32,
    /// The launcher that tells the address of every other tensor; none when no vendor launches the kernels.
    launcher: Option<&'static dyn Launcher>,
}

impl Memory {
    /// No memory at all.
    pub const NONE: Self = Self::new(i32::MIN, None);

    /// The memory of a vendor, with torch's `DeviceType` of it.
    pub const fn new(device_type: i32, launcher: Option<&'static dyn Launcher>) -> Self {
        Self {
            device_type,
            launcher,
        }
    }

    /// The address by which a kernel reaches the tensor. Triton asks the driver for the address of every tensor;
    /// here only those that are not on the kernel's kind of device need the question.
    #[inline]
    pub fn reach(&self, tensor: Tensor) -> Result<u64, Reason> {
        if tensor.device_type == self.device_type || tensor.address == 0 {
            return Ok(tensor.address);
        }
        let launcher = self.launcher.ok_or(Reason::Memory)?;
        match launcher.device_address(tensor.address) {
            Ok(Some(address)) => Ok(address),
            Ok(None) | Err(_) => Err(Reason::Memory),
        }
    }
}
