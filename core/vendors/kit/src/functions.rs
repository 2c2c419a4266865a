//! The table of the functions of a library that is found at run time.

/// Declares `Api`, the addresses of a library's functions, `REQUIRED`, the names of those without which the vendor cannot
/// be used, and `Api::find`. `newer` functions are `None` in a library that lacks them. All return `Code`, and `texts` a
/// text.
#[macro_export]
macro_rules! functions {
    (
        required { $($name:ident($($argument:ty),*);)* }
        newer { $($newer:ident($($newer_argument:ty),*);)* }
        texts($kind:ty) { $($text:ident;)* }
    ) => {
        /// The addresses of the functions in the library; `None` for a newer function that the library lacks.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
            $(pub(crate) $text: $kind,)*
        }

        /// The functions without which the vendor cannot be used.
        pub(crate) const REQUIRED: &[&str] = &[$(stringify!($name),)* $(stringify!($text),)*];

        impl Api {
            /// Finds every function in a library that has all of [`REQUIRED`]; `None` in any other.
            ///
            /// # Safety
            /// The library is the vendor's, and stays open for as long as the functions are used.
            pub(crate) unsafe fn find(library: &$crate::libloading::Library) -> Option<Self> {
                // SAFETY: the signatures are those of the vendor's library.
                unsafe {
                    Some(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0")).ok()?,)*
                        $($newer: library.get(concat!(stringify!($newer), "\0")).ok().map(|found| *found),)*
                        $($text: *library.get(concat!(stringify!($text), "\0")).ok()?,)*
                    })
                }
            }
        }
    };
}
