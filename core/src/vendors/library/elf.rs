//! Whether a file is a library of this machine, by its first bytes, and whether it is whole: the dynamic linker says less
//! about one that is not, and crashes on one that is cut short.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The bytes of the header that are read: up to the machine.
const HEAD: usize = 20;
const SHARED_OBJECT: u16 = 3;

/// The numbers of machines in ELF, with their names in Rust and for people.
const MACHINES: [(u16, &str, &str); 8] = [
    (3, "x86", "32-bit x86"),
    (21, "powerpc64", "64-bit PowerPC"),
    (22, "s390x", "IBM Z"),
    (40, "arm", "32-bit ARM"),
    (62, "x86_64", "x86-64"),
    (183, "aarch64", "64-bit ARM"),
    (243, "riscv64", "RISC-V"),
    (258, "loongarch64", "LoongArch"),
];

/// The defect of the library at `path`, if it shows without loading the library.
pub(super) fn check(path: &Path) -> io::Result<Result<(), String>> {
    if !cfg!(target_os = "linux") {
        return Ok(Ok(()));
    }
    let file = File::open(path)?;
    let mut head = Vec::with_capacity(HEAD);
    (&file).take(HEAD as u64).read_to_end(&mut head)?;
    match judge(&head) {
        Ok(()) if usize::BITS == 64 => is_whole(&file),
        judged => Ok(judged),
    }
}

/// The header of an ELF file of 64 bits, and an entry of its table of segments.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// The type of a segment that is mapped into memory.
const LOADED: [u8; 4] = 1_u32.to_ne_bytes();

/// What is wrong with the length of an ELF file of 64 bits and of this machine's order of bytes: memory behind the end of
/// a file is mapped, and crashes whoever reads it.
fn is_whole(file: &File) -> io::Result<Result<(), String>> {
    let length = file.metadata()?.len();
    let mut needed = HEADER as u64;
    if length >= needed {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let half = |at: usize| u64::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let (table, stride, count) = (word(&header, 32), half(54), half(56));
        if stride != SEGMENT as u64 {
            return Ok(Ok(())); // the linker refuses it
        }
        needed = table.saturating_add(stride * count);
        if length >= needed {
            for index in 0..count {
                let mut segment = [0; SEGMENT];
                file.read_exact_at(&mut segment, table + index * stride)?;
                if segment[..4] == LOADED {
                    needed = needed.max(word(&segment, 8).saturating_add(word(&segment, 32)));
                }
            }
        }
    }
    Ok(if length >= needed {
        Ok(())
    } else {
        Err(format!(
            "it is cut short: {length} bytes are there, and {needed} are needed"
        ))
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    (0..8).rfold(0, |word, byte| {
        let place = if cfg!(target_endian = "little") {
            byte
        } else {
            7 - byte
        };
        word << 8 | u64::from(bytes[at + place])
    })
}

fn judge(head: &[u8]) -> Result<(), String> {
    let Ok(head) = <[u8; HEAD]>::try_from(head) else {
        return Err("it is no shared library: too short for an ELF file".into());
    };
    if head[..4] != *b"\x7fELF" {
        return Err("it is no shared library: not an ELF file".into());
    }
    let little = head[5] == 1;
    let half = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        }
    };
    let found = Machine {
        bits: match head[4] {
            1 => 32,
            2 => 64,
            _ => 0,
        },
        little,
        number: half(18),
    };
    let own = Machine::own(found.number);
    if found != own {
        return Err(format!("it is for {found}, and this process is {own}"));
    }
    match half(16) {
        SHARED_OBJECT => Ok(()),
        kind => Err(format!(
            "it is no shared library: an ELF file of type {kind}, and a shared library has type {SHARED_OBJECT}"
        )),
    }
}

/// A kind of machine that code runs on.
#[derive(PartialEq, Eq)]
struct Machine {
    bits: u32,
    little: bool,
    number: u16,
}

impl Machine {
    /// The machine of this process, with this number if its architecture has no entry.
    fn own(otherwise: u16) -> Self {
        let mut known = MACHINES.iter();
        let own = known.find(|(_, arch, _)| *arch == std::env::consts::ARCH);
        Self {
            bits: usize::BITS,
            little: cfg!(target_endian = "little"),
            number: own.map_or(otherwise, |(number, ..)| *number),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bits, number, .. } = self;
        let order = if self.little { "little" } else { "big" };
        match MACHINES.iter().find(|(known, ..)| known == number) {
            Some((.., name)) => write!(f, "{name} ({bits} bits, {order}-endian)"),
            None => write!(f, "machine {number} of ELF ({bits} bits, {order}-endian)"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The header of the program that runs this test, as that of a shared library.
    fn own() -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let program = std::env::current_exe().expect("this program");
        let mut file = File::open(program).expect("this program");
        file.read_exact(&mut head).expect("a header");
        head[16..18].copy_from_slice(&SHARED_OBJECT.to_ne_bytes());
        head
    }

    #[test]
    fn other_machines_are_named() {
        assert_eq!(judge(&own()), Ok(()));
        for (number, name) in [
            (183_u16, "64-bit ARM"),
            (62, "x86-64"),
            (999, "machine 999"),
        ] {
            let mut other = own();
            other[18..20].copy_from_slice(&number.to_ne_bytes());
            if other == own() {
                continue;
            }
            let wrong = judge(&other).expect_err("another machine");
            let ends = format!("{} bits, little-endian)", usize::BITS);
            assert!(
                wrong.starts_with(&format!("it is for {name}"))
                    && wrong.contains("and this process is")
                    && (wrong.ends_with(&ends) || cfg!(target_endian = "big")),
                "{wrong}"
            );
        }
        let mut narrow = own();
        narrow[4] = 1;
        assert!(judge(&narrow).expect_err("32 bits").contains("(32 bits,"));
        let mut object = own();
        object[16..18].copy_from_slice(&1_u16.to_ne_bytes());
        assert!(
            judge(&object)
                .expect_err("an object file")
                .contains("of type 1")
        );
    }

    #[test]
    fn a_library_that_is_cut_short_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("library.so");
        let program = std::env::current_exe().expect("this program");
        std::fs::copy(program, &path).expect("own folder");
        let file = File::options().write(true).open(&path).expect("own file");
        file.write_all_at(&own(), 0).expect("own file");
        assert_eq!(check(&path).expect("read"), Ok(()));
        for length in [4096, 100, HEADER as u64 - 1, HEAD as u64] {
            file.set_len(length).expect("own file");
            let wrong = check(&path).expect("read").expect_err("cut short");
            let says = format!("it is cut short: {length} bytes are there");
            assert!(wrong.starts_with(&says), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_header_that_differs_where_it_matters_is_refused(at in 0..HEAD, byte in any::<u8>()) {
            let mut head = own();
            let same = head[at] == byte || (6..16).contains(&at);
            head[at] = byte;
            prop_assert_eq!(judge(&head).is_ok(), same);
        }

        #[test]
        fn any_bytes_are_judged(head in proptest::collection::vec(any::<u8>(), 0..=HEAD)) {
            let judged = judge(&head);
            prop_assert!(judged.is_err() || head.starts_with(b"\x7fELF"));
        }
    }
}
