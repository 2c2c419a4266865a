//! Calls of the functions of a library's table.

/// Calls a function by its name: `call!(instance, stream_sync(handle))` is `instance.call`, which gets the name and the
/// result, `None` of a function that the library lacks. As unsafe as the function.
macro_rules! call {
    ($called:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $called.call(stringify!($name), |table| table.$name.map(|function| function($($argument),*)))
    };
}

/// As [`call!`], by the method `give_back`.
macro_rules! give_back {
    ($called:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $called.give_back(stringify!($name), |table| table.$name.map(|function| function($($argument),*)))
    };
}

pub(super) use {call, give_back};
