//! Texts of a library: C strings that are not trusted to end.

use std::ffi::c_char;

/// The most bytes of a text. A longer text counts as one without an end.
const LONGEST: usize = 4096;
/// The most texts of a list. A longer list counts as one without an end.
const MOST: usize = 1 << 14;

/// The text at `text`, or what is wrong with it.
///
/// # Safety
/// `text` is NULL, or readable up to its NUL or for [`LONGEST`] bytes.
pub(super) unsafe fn read(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Err("is NULL".into());
    }
    // SAFETY: `strnlen` reads no byte after the NUL, nor more than `LONGEST`: the caller's promise.
    let bytes = unsafe {
        let length = libc::strnlen(text, LONGEST);
        std::slice::from_raw_parts(text.cast::<u8>(), length)
    };
    if bytes.len() == LONGEST {
        return Err(format!("has no end within {LONGEST} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {error}"))?;
    Ok(text.to_owned())
}

/// The text at `text` for a message: invalid UTF-8 is replaced, and NULL is `None`.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn read_lossy(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as in `read`.
    let bytes = unsafe {
        let length = libc::strnlen(text, LONGEST);
        std::slice::from_raw_parts(text.cast::<u8>(), length)
    };
    Some(String::from_utf8_lossy(bytes).into_owned()).filter(|text| !text.is_empty())
}

/// A required text: not NULL and not empty. `member` names it in the error.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn required(member: &str, given: *const c_char) -> Result<String, String> {
    // SAFETY: the caller's promise.
    let text = unsafe { read(given) }.map_err(|what| format!("{member} {what}"))?;
    if text.is_empty() {
        Err(format!("{member} is empty"))
    } else {
        Ok(text)
    }
}

/// A list of texts, ended by NULL; NULL is an empty one. `read` reads a text by the name in its errors.
///
/// # Safety
/// `given` is NULL, or texts as [`read`] takes them, up to a NULL.
pub(super) unsafe fn list(
    member: &str,
    given: *const *const c_char,
    read: unsafe fn(&str, *const c_char) -> Result<String, String>,
) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    if given.is_null() {
        return Ok(texts);
    }
    if !given.is_aligned() {
        return Err(format!("{member} is at the unaligned address {given:p}"));
    }
    for index in 0..MOST {
        // SAFETY: the caller's promise: a NULL ends the list, and none was read yet.
        let text = unsafe { given.add(index).read() };
        if text.is_null() {
            return Ok(texts);
        }
        // SAFETY: as above.
        texts.push(unsafe { read(&format!("{member}[{index}]"), text) }?);
    }
    Err(format!("{member} has no end within {MOST} texts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_checked() {
        let wrong = |text: *const c_char| {
            // SAFETY: NULL, or one of the arrays below.
            unsafe { read(text) }.expect_err("wrong")
        };
        assert_eq!(wrong(std::ptr::null()), "is NULL");
        assert!(wrong(c"\xff".as_ptr()).starts_with("is not UTF-8"));
        let endless = vec![b'a'; LONGEST];
        assert!(wrong(endless.as_ptr().cast()).starts_with("has no end"));
        // SAFETY: literals.
        unsafe {
            assert_eq!(read(c"chip".as_ptr()), Ok("chip".into()));
            assert_eq!(read_lossy(c"a\xff".as_ptr()), Some("a\u{fffd}".into()));
            assert_eq!(read_lossy(c"".as_ptr()), None);
            assert_eq!(read_lossy(std::ptr::null()), None);
        }
    }
}
