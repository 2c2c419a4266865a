//! Calls of a driver's functions.

/// Calls a function of a table by its name: `call!(api, cuInit(0))` is a `Result` by the table's method `check`, which gets
/// the name and the code.
#[macro_export]
macro_rules! call {
    ($api:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $api.check(stringify!($name), ($api.$name)($($argument),*))
    };
}
