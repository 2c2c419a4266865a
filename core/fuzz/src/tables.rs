//! The tables that a vendor's library returns, whose sizes, versions, bits, texts and functions are any.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::mem::{offset_of, size_of};
use std::ptr::null;

use flagos_core::vendors::library::*;

/// Decisions, one after the other, of the bytes of an input; zeros behind its end.
struct Bytes<'d>(&'d [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// One in `n`; behind the end never.
    fn rarely(&mut self, n: u8) -> bool {
        let byte = self.byte();
        byte != 0 && byte % n == 0
    }

    /// A text without NUL.
    fn text(&mut self) -> CString {
        let length = usize::from(self.byte()).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        CString::new(text.split(|byte| *byte == 0).next().unwrap_or_default()).expect("no NUL")
    }
}

/// A struct of the other side: on the heap, and no byte longer than it says that it is, so that a sanitizer sees every
/// byte that is read beyond.
struct Sized {
    address: *mut u8,
    layout: Layout,
}

impl Sized {
    /// The first `size` bytes of `whole`, and zeros behind it. The size, which comes first, is written into it.
    fn new<T>(whole: &T, size: usize) -> Self {
        let bytes = size.max(size_of::<usize>());
        let layout = Layout::from_size_align(bytes, align_of::<usize>()).expect("a small size");
        // SAFETY: not empty; both have the bytes that are copied, and the size fits in.
        unsafe {
            let address = alloc_zeroed(layout);
            if address.is_null() {
                handle_alloc_error(layout);
            }
            let both = bytes.min(size_of::<T>());
            std::ptr::from_ref(whole)
                .cast::<u8>()
                .copy_to_nonoverlapping(address, both);
            address.cast::<usize>().write(size);
            Self { address, layout }
        }
    }
}

impl Drop for Sized {
    fn drop(&mut self) {
        // SAFETY: of the same layout.
        unsafe { dealloc(self.address, self.layout) };
    }
}

/// A size: mostly right, else anything up to twice that.
fn size(bytes: &mut Bytes<'_>, right: usize) -> usize {
    if bytes.rarely(5) {
        bytes.word() as usize % (2 * right)
    } else {
        right
    }
}

fn version(bytes: &mut Bytes<'_>, right: (u32, u32)) -> (u32, u32) {
    let major = if bytes.rarely(16) {
        bytes.word() as u32
    } else {
        right.0
    };
    let minor = if bytes.rarely(4) {
        bytes.word() as u32
    } else {
        right.1
    };
    (major, minor)
}

/// Texts, and the list of them that ends with NULL.
struct Texts {
    _texts: Vec<CString>,
    list: Vec<*const c_char>,
}

impl Texts {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let count = bytes.byte() % 5;
        let texts: Vec<_> = (0..count).map(|_| bytes.text()).collect();
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(null());
        Self {
            _texts: texts,
            list,
        }
    }

    fn address(&self, bytes: &mut Bytes<'_>) -> *const *const c_char {
        match bytes.byte() % 8 {
            0 => null(),
            1 => self.list.as_ptr().wrapping_byte_add(1),
            _ => self.list.as_ptr(),
        }
    }
}

/// Writes a word, mostly not 0, into some of the words from `first` on, up to `end`, which are functions or reserved.
fn edit<T>(bytes: &mut Bytes<'_>, table: &mut T, first: usize, end: usize) {
    let words = std::ptr::from_mut(table).cast::<usize>();
    for _ in 0..bytes.byte() % 4 {
        let at = first / size_of::<usize>()
            + bytes.byte() as usize % ((end - first) / size_of::<usize>());
        let word = if bytes.rarely(2) { 1 } else { 0 };
        // SAFETY: within the table, and a function or a reserved slot, of which any word is a value.
        unsafe { words.add(at).write(word) };
    }
}

thread_local! {
    static VENDOR: Cell<*const FlagosVendor> = const { Cell::new(null()) };
    static KERNELS: Cell<*const FlagosKernels> = const { Cell::new(null()) };
    static REASON: Cell<*const c_char> = const { Cell::new(null()) };
}

unsafe extern "C" fn vendor_entry(
    _: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosVendor {
    // SAFETY: a valid output.
    unsafe { reason.write(REASON.get()) };
    VENDOR.get()
}

unsafe extern "C" fn kernels_entry(
    _: *const FlagosVendorHost,
    reason: *mut *const c_char,
) -> *const FlagosKernels {
    // SAFETY: a valid output.
    unsafe { reason.write(REASON.get()) };
    KERNELS.get()
}

/// A table whose every function is there. None is called.
fn filled<T>(first: usize, end: usize) -> T {
    let mut table = std::mem::MaybeUninit::<T>::zeroed();
    let words = table.as_mut_ptr().cast::<usize>();
    for at in first / size_of::<usize>()..end / size_of::<usize>() {
        // SAFETY: within the table.
        unsafe { words.add(at).write(1) };
    }
    // SAFETY: zeros and functions, which are never called, are a table.
    unsafe { table.assume_init() }
}

/// Offers the library that `data` tells of to the core.
///
/// # Panics
/// When a library is taken that cannot be right, or the reason of a refusal is no line for people.
pub fn vendor_tables(data: &[u8]) {
    let bytes = &mut Bytes(data);
    let (name, release, reason) = (bytes.text(), bytes.text(), bytes.text());
    let (aliases, lost, names) = (Texts::new(bytes), Texts::new(bytes), Texts::new(bytes));
    let (variable, meaning) = (bytes.text(), bytes.text());
    REASON.set(if bytes.rarely(2) {
        reason.as_ptr()
    } else {
        null()
    });

    let entry = FlagosVendorVariable {
        struct_size: size(bytes, size_of::<FlagosVendorVariable>()),
        name: variable.as_ptr(),
        text: meaning.as_ptr(),
    };
    let variables = Sized::new(&entry, entry.struct_size);
    // SAFETY: all members are numbers and addresses, of which 0 is one.
    let mut description: FlagosVendorDescription = unsafe { std::mem::zeroed() };
    description.name = if bytes.rarely(16) {
        null()
    } else {
        name.as_ptr()
    };
    description.version = release.as_ptr();
    description.aliases = aliases.address(bytes);
    description.device_lost = lost.address(bytes);
    description.variables = if bytes.rarely(8) {
        null()
    } else {
        variables.address.cast()
    };
    description.num_variables = match bytes.byte() {
        255 => usize::MAX,
        byte => usize::from(byte % 2),
    };
    description.torch_device_type = if bytes.rarely(2) {
        name.as_ptr()
    } else {
        null()
    };
    description.serving = i32::from(bytes.byte() as i8) % 5;
    description.dlpack_device_type = i32::from(bytes.byte() as i8);
    if bytes.rarely(8) {
        description.reserved[usize::from(bytes.byte() % 16)] = std::ptr::dangling();
    }
    let told = Sized::new(
        &description,
        size(bytes, size_of::<FlagosVendorDescription>()),
    );

    let first = offset_of!(FlagosVendor, last_error);
    let functions = offset_of!(FlagosVendor, reserved);
    let mut table: FlagosVendor = filled(first, functions);
    // An address, and a number of structs there.
    (table.declarations, table.num_declarations) = (null(), 0);
    (table.major, table.minor) = version(bytes, (FLAGOS_VENDOR_MAJOR, FLAGOS_VENDOR_MINOR));
    table.capabilities = if bytes.rarely(3) {
        bytes.word()
    } else {
        u64::from(bytes.byte() % 32)
    };
    table.description = if bytes.rarely(16) {
        null()
    } else {
        told.address.cast_const().cast()
    };
    edit(bytes, &mut table, first, size_of::<FlagosVendor>());
    let offered = Sized::new(&table, size(bytes, size_of::<FlagosVendor>()));
    VENDOR.set(if bytes.rarely(32) {
        null()
    } else {
        offered.address.cast_const().cast()
    });

    let functions = offset_of!(FlagosKernels, names);
    let mut kernels: FlagosKernels = filled(offset_of!(FlagosKernels, last_error), functions);
    (kernels.major, kernels.minor) = version(bytes, (FLAGOS_KERNELS_MAJOR, FLAGOS_KERNELS_MINOR));
    edit(
        bytes,
        &mut kernels,
        offset_of!(FlagosKernels, last_error),
        functions,
    );
    edit(
        bytes,
        &mut kernels,
        offset_of!(FlagosKernels, reserved),
        size_of::<FlagosKernels>(),
    );
    kernels.names = names.address(bytes);
    let computing = Sized::new(&kernels, size(bytes, size_of::<FlagosKernels>()));
    KERNELS.set(if bytes.rarely(32) {
        null()
    } else {
        computing.address.cast_const().cast()
    });
    let entry: FlagosKernelsEntry = if bytes.rarely(8) {
        None
    } else {
        Some(kernels_entry)
    };

    // SAFETY: what the tables say of their sizes is true.
    let taken = unsafe { Library::read(Some(vendor_entry), entry, &mut |_, _| ()) };
    match taken {
        Ok(library) => {
            assert_eq!(library.version().0, FLAGOS_VENDOR_MAJOR);
            assert!(offered.layout.size() >= size_of::<FlagosVendor>());
            assert!(told.layout.size() >= size_of::<FlagosVendorDescription>());
            let about = library.description();
            assert_eq!(about.name.as_bytes(), name.as_bytes());
            assert!(about.dlpack_device_type >= 1 && !about.version.is_empty());
            let served = about.serving.clone();
            assert!(
                !matches!(served, flagos_core::vendors::Serving::Library)
                    || library.kernels().is_some()
            );
        }
        Err(wrong) => assert!(!wrong.is_empty(), "a reason"),
    }
}
