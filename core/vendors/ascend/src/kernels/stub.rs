//! Calls of C functions whose parameters are known at run time.
//!
//! The System V ABI of x86-64 and AAPCS64 of Linux put whole numbers and pointers in one row of registers and
//! floating-point numbers in another, each row in the order of the parameters; what finds no register lies on the stack in
//! 8 bytes each. So a function with at most eight floating-point parameters finds its arguments where this type leaves
//! them: all whole numbers first, then eight floating-point registers. A `float` lies in the low half of its register.
//! Registers beyond a function's own parameters may hold anything, and the caller takes the stack back.

use std::ffi::c_int;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("the registers of parameters are known for Linux on x86-64 and AArch64 alone");

/// The most whole numbers and pointers of a call.
const MOST_WORDS: usize = 56;
/// The registers for floating-point parameters, in both ABIs.
pub(super) const MOST_REALS: usize = 8;

/// The arguments of a call, as its registers hold them.
#[derive(Debug)]
pub(super) struct Words {
    words: [u64; MOST_WORDS],
    num_words: usize,
    reals: [f64; MOST_REALS],
    num_reals: usize,
}

impl Words {
    pub(super) fn new() -> Self {
        Self {
            words: [0; MOST_WORDS],
            num_words: 0,
            // What a function reads by mistake is no number.
            reals: [f64::NAN; MOST_REALS],
            num_reals: 0,
        }
    }

    /// Adds a whole number, extended to 64 bits, or an address. The table of functions keeps to the limit.
    pub(super) fn word(&mut self, word: u64) {
        self.words[self.num_words] = word;
        self.num_words += 1;
    }

    /// Adds an address.
    pub(super) fn address<T>(&mut self, address: *const T) {
        self.word(address as u64);
    }

    /// Adds a `double`.
    pub(super) fn double(&mut self, value: f64) {
        self.reals[self.num_reals] = value;
        self.num_reals += 1;
    }

    /// Adds a `float`.
    pub(super) fn float(&mut self, value: f32) {
        self.double(f64::from_bits(u64::from(value.to_bits())));
    }

    /// Calls the function at this address.
    ///
    /// # Safety
    /// A C function that returns `int` lives there, and these are its arguments.
    pub(super) unsafe fn call(&self, function: *const ()) -> c_int {
        // SAFETY: the caller's promise, and the order of registers above.
        unsafe {
            match self.num_words {
                0..=8 => self.call_8(function),
                9..=16 => self.call_16(function),
                17..=32 => self.call_32(function),
                _ => self.call_56(function),
            }
        }
    }
}

/// A method that passes as many words as there are places named.
macro_rules! caller {
    ($name:ident: $($place:literal)*) => {
        unsafe fn $name(&self, function: *const ()) -> c_int {
            type Function = unsafe extern "C" fn(
                $(caller!(@word $place),)* f64, f64, f64, f64, f64, f64, f64, f64,
            ) -> c_int;
            // SAFETY: the caller's promise.
            unsafe {
                let function = std::mem::transmute::<*const (), Function>(function);
                let [a, b, c, d, e, f, g, h] = self.reals;
                function($(self.words[$place],)* a, b, c, d, e, f, g, h)
            }
        }
    };
    (@word $place:literal) => { u64 };
}

impl Words {
    caller!(call_8: 0 1 2 3 4 5 6 7);
    caller!(call_16: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    caller!(call_32: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    caller!(call_56: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn see(values: &[&dyn std::fmt::Debug]) -> c_int {
        SEEN.with_borrow_mut(|seen| {
            *seen = values.iter().map(|value| format!("{value:?}")).collect()
        });
        7
    }

    extern "C" fn mixed(
        a: *const u8,
        mean: f32,
        b: i8,
        deviation: f64,
        c: bool,
        d: i32,
        scale: f32,
        e: i64,
        f: u64,
        g: i16,
        h: i64,
        i: bool,
        keep: f64,
        j: i8,
    ) -> c_int {
        see(&[
            &a.is_null(),
            &mean,
            &b,
            &deviation,
            &c,
            &d,
            &scale,
            &e,
            &f,
            &g,
            &h,
            &i,
            &keep,
            &j,
        ])
    }

    #[test]
    fn every_class_of_parameter_arrives_in_a_function_of_its_own_types() {
        let mut words = Words::new();
        words.address::<u8>(std::ptr::null());
        words.float(0.1);
        words.word(-3_i64 as u64);
        words.double(1e300);
        words.word(1);
        words.word(i64::from(i32::MIN) as u64);
        words.float(-2.5);
        words.word(-1_i64 as u64);
        words.word(u64::MAX);
        words.word(-300_i64 as u64);
        words.word(9);
        words.word(0);
        words.double(0.9);
        words.word(-8_i64 as u64);
        // SAFETY: a function with these parameters.
        let code = unsafe { words.call(mixed as *const ()) };
        assert_eq!(code, 7);
        let expected = [
            "true",
            "0.1",
            "-3",
            "1e300",
            "true",
            "-2147483648",
            "-2.5",
            "-1",
            "18446744073709551615",
            "-300",
            "9",
            "false",
            "0.9",
            "-8",
        ];
        SEEN.with_borrow(|seen| assert_eq!(*seen, expected));
    }

    extern "C" fn unused(first: i64, given: f32, absent: f64) -> c_int {
        c_int::from(first == 5 && given == 1.5 && absent.is_nan())
    }

    #[test]
    fn a_register_that_nobody_filled_holds_no_number() {
        let mut words = Words::new();
        words.word(5);
        words.float(1.5);
        // SAFETY: the function takes one argument more, a register whatever it holds.
        assert_eq!(unsafe { words.call(unused as *const ()) }, 1);
    }

    macro_rules! long {
        ($name:ident: $($place:ident)*) => {
            extern "C" fn $name($($place: u64,)* last: f32) -> c_int {
                let given = [$($place),*];
                let right = given.iter().enumerate().all(|(place, word)| *word == place as u64 + 1);
                c_int::from(right && last == 0.25)
            }
        };
    }
    long!(nine: a0 a1 a2 a3 a4 a5 a6 a7 a8);
    long!(twenty: a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9);
    long!(forty: a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9
        c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 d1 d2 d3 d4 d5 d6 d7 d8 d9);

    #[test]
    fn what_finds_no_register_arrives_on_the_stack() {
        let cases = [
            (nine as *const (), 9),
            (twenty as *const (), 20),
            (forty as *const (), 40),
        ];
        for (function, count) in cases {
            let mut words = Words::new();
            words.float(0.25);
            (0..count).for_each(|place| words.word(place + 1));
            // SAFETY: a function with as many parameters.
            assert_eq!(unsafe { words.call(function) }, 1, "{count}");
        }
    }
}
