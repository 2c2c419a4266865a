//! The description of a vendor: its particulars, as data.

/// Fails with what is wrong with the name of a vendor.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let fits = name.len() <= 31 && name.starts_with(|c: char| c.is_ascii_lowercase());
    if fits && name.chars().all(part) {
        return Ok(());
    }
    Err(format!(
        "`{name}` is no name of a vendor: a name is a lower-case letter, then letters, digits and `_`, at most 31 of all"
    ))
}

/// How a framework computes on the devices of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// Host code computes on device memory.
    Host,
    /// The framework computes on its own device type, which is named.
    Torch(String),
    /// Kernels of the vendor's library compute.
    Library,
}

impl Serving {
    /// The way of serving in one word: `host`, `torch` or `library`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Torch(_) => "torch",
            Self::Library => "library",
        }
    }

    /// The number of the way of serving: one of `FLAGOS_VENDOR_SERVED_BY_*` of `flagos_vendor.h`.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::Host => 0,
            Self::Torch(_) => 1,
            Self::Library => 2,
        }
    }

    /// The framework's own device type, where the framework computes.
    #[must_use]
    pub fn torch_device_type(&self) -> Option<&str> {
        match self {
            Self::Torch(device_type) => Some(device_type),
            Self::Host | Self::Library => None,
        }
    }
}

/// An environment variable of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: String,
    /// The effect of the variable.
    pub text: String,
}

/// A library that a vendor uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededLibrary {
    /// The name by which the dynamic linker finds the library.
    pub soname: String,
    /// The purpose of the library.
    pub text: String,
    /// Whether the vendor needs the library.
    pub required: bool,
}

impl NeededLibrary {
    /// A library by its soname, with its purpose.
    #[must_use]
    pub fn new(soname: &str, text: &str, required: bool) -> Self {
        Self {
            soname: soname.into(),
            text: text.into(),
            required,
        }
    }
}

/// The description of a vendor. A library's is read from its table and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The name that selects the vendor.
    pub name: String,
    /// The version of the vendor's code, for people.
    pub version: String,
    /// Other names of the vendor.
    pub aliases: Vec<String>,
    /// The vendor's own environment variables.
    pub variables: Vec<Variable>,
    /// The libraries that `flagos doctor` looks for.
    pub libraries: Vec<NeededLibrary>,
    /// Texts that mean, in an error of any library over this vendor, that the device is lost.
    pub device_lost: Vec<String>,
    /// The collective engine for the vendor's memory.
    pub collective_engine: Option<String>,
    /// The name of the vendor's Triton backend.
    pub triton_backend: Option<String>,
    /// The name of the vendor in FlagGems.
    pub flaggems_vendor: Option<String>,
    /// How a framework computes on the devices.
    pub serving: Serving,
    /// The `DLDeviceType` of device memory.
    pub dlpack_device_type: i32,
}

impl Description {
    /// Whether an error with this text means that the device is lost.
    #[must_use]
    pub fn means_lost(&self, text: &str) -> bool {
        self.device_lost.iter().any(|known| text.contains(known))
    }
}
