//! Where an address lies, for vendors that keep account of their memory.

/// The place of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On this device.
    Device(usize),
    /// In page-locked memory of the host.
    Pinned,
    /// In any other memory of the host.
    Ordinary,
}

impl Place {
    /// The device, of device memory.
    #[must_use]
    pub fn device(self) -> Option<usize> {
        match self {
            Self::Device(device) => Some(device),
            Self::Pinned | Self::Ordinary => None,
        }
    }
}
