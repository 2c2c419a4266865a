//! Calls of a driver's functions.

/// Calls a function of a table by its name: `call!(api, cuInit(0))` is a `Result` by the table's method `check`, which gets
/// the name and the code.
#[macro_export]
macro_rules! call {
    ($api:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $api.check(stringify!($name), ($api.$name)($($argument),*))
    };
}

/// As [`call!`], of a function that the library may lack. Then the error is that of the table's method `lacks`.
#[macro_export]
macro_rules! call_newer {
    ($api:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        match $api.$name {
            Some(function) => $api.check(stringify!($name), function($($argument),*)),
            None => Err($api.lacks(stringify!($name))),
        }
    };
}

/// The names of those of a table's newer functions that the library lacks; `None` when it has all of them.
#[macro_export]
macro_rules! lacking {
    ($api:expr, $($name:ident),*) => {{
        let lacking = [$($api.$name.is_none().then_some(stringify!($name))),*];
        let lacking: Vec<&str> = lacking.into_iter().flatten().collect();
        (!lacking.is_empty()).then(|| lacking.join(", "))
    }};
}
