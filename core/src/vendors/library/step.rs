//! The steps of taking a library, for those who tell of them.

/// A step of taking a library, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The file is found.
    File,
    /// The dynamic linker opens it.
    Load,
    /// It exports the entry function.
    Symbols,
    /// It returns a table of a version that this flagos takes.
    Version,
    /// The table is whole.
    Table,
    /// The description is valid.
    Description,
    /// The table of kernels is whole.
    Kernels,
}

impl Step {
    /// The step in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Load => "load",
            Self::Symbols => "symbols",
            Self::Version => "version",
            Self::Table => "table",
            Self::Description => "description",
            Self::Kernels => "kernels",
        }
    }
}
