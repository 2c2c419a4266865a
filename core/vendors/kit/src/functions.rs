//! The table of the functions of a library that is found at run time.

/// Declares a table of the addresses of a library's functions. `newer` functions are `None` in a library that lacks them.
/// All of these return the module's `Code`; `others` are required too, and return anything.
#[macro_export]
macro_rules! functions {
    (
        $table:ident
        required { $($name:ident($($argument:ty),*);)* }
        newer { $($newer:ident($($newer_argument:ty),*);)* }
        others { $($other:ident($($other_argument:ty),*) -> $result:ty;)* }
    ) => {
        /// The addresses of the functions in the library; `None` for a newer function that the library lacks.
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
            $(pub(crate) $other: unsafe extern "C" fn($($other_argument),*) -> $result,)*
        }

        impl $table {
            /// The functions without which the vendor cannot be used.
            pub(crate) const REQUIRED: &[&str] = &[$(stringify!($name),)* $(stringify!($other),)*];

            /// Finds every function. The error names those of `REQUIRED` that the library lacks.
            ///
            /// # Safety
            /// The library is the vendor's, and stays open for as long as the functions are used.
            pub(crate) unsafe fn find(
                library: &$crate::libloading::Library,
            ) -> std::result::Result<Self, Vec<&'static str>> {
                // SAFETY: the signatures are those of the vendor's library.
                let found = || unsafe {
                    Some(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0")).ok()?,)*
                        $($newer: library.get(concat!(stringify!($newer), "\0")).ok().map(|found| *found),)*
                        $($other: *library.get(concat!(stringify!($other), "\0")).ok()?,)*
                    })
                };
                found().ok_or_else(|| $crate::driver_library::missing(library, Self::REQUIRED))
            }
        }
    };
}
