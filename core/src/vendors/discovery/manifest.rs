//! The manifest of a vendor's library: a TOML file, which is read without the library.
//!
//! ```toml
//! name = "example"                       # selects the vendor, as in its description
//! library = "libflagos_example.so"       # relative to this file
//! interface = "1.0"                      # the version of flagos_vendor.h that it was compiled with
//! aliases = ["sample"]                   # as in its description
//! rank = 50                              # of several usable vendors the highest is chosen; a built-in one has 100, the host 0
//! device_files = ["/dev/example[0-9]*"]  # some of these exist where there is a device
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use glob::Pattern;
use serde::Deserialize;
use toml::Spanned;

use crate::descriptions::{Description, check_name};
use crate::trusted;
use crate::vendors::library::{self, Library};

/// The most entries of a list.
const LONGEST: usize = 64;
const RANKS: std::ops::RangeInclusive<i32> = 1..=1000;
const DEFAULT_RANK: i32 = 50;

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Spanned<String>,
    library: Spanned<String>,
    interface: Spanned<String>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
    rank: Option<Spanned<i32>>,
    #[serde(default)]
    device_files: Vec<Spanned<String>>,
}

/// A manifest that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The name that selects the vendor.
    pub name: String,
    /// Other names of the vendor.
    pub aliases: Vec<String>,
    /// The path of the library.
    pub library: PathBuf,
    /// The version of `flagos_vendor.h` that the library was compiled with, major and minor.
    pub interface: (u32, u32),
    /// The usable vendor with the highest rank is chosen.
    pub rank: i32,
    /// Files of which some exist where there is a device. Without any the vendor is used only when it is asked for.
    pub device_files: Vec<DeviceFiles>,
}

/// The canonical path of a library, after the checks that load nothing: no stranger can change it, and it is for this
/// machine. Fails with what is wrong.
pub fn check_library(path: &Path) -> Result<PathBuf, String> {
    let path = trusted::check(path).map_err(|error| error.to_string())?;
    Library::examine(&path).map_err(|error| error.message().to_owned())
}

impl Manifest {
    /// Reads the manifest in a file, which no stranger may be able to change. Fails with what is wrong.
    pub fn read(file: &Path) -> Result<Self, String> {
        let refused = |error: std::io::Error| format!("its manifest cannot be used: {error}");
        // A link leads to a library beside the file that it stands for.
        let file = trusted::check(file).map_err(refused)?;
        let text = trusted::read(&file, true).map_err(refused)?;
        Self::parse(&text, file.parent().unwrap_or(Path::new("/")))
    }

    /// The canonical path of the library, after the checks that load nothing. Fails with what is wrong.
    pub fn check(&self) -> Result<PathBuf, String> {
        let (major, minor) = self.interface;
        if !library::takes(major) {
            return Err(format!(
                "its library implements version {major}.{minor} of flagos_vendor.h, and this flagos takes {}",
                library::versions_taken()
            ));
        }
        check_library(&self.library).map_err(|what| {
            format!(
                "its library {} cannot be used: {what}",
                self.library.display()
            )
        })
    }

    /// Fails when the library tells other names than the manifest, which other vendors are compared with.
    pub fn agree(&self, description: &Description) -> Result<(), String> {
        let sorted = |aliases: &[String]| {
            let mut aliases = aliases.to_vec();
            aliases.sort_unstable();
            aliases
        };
        let differ = |key: &str, manifest: &str, library: &str| {
            format!(
                "`{key}` is {manifest} in the manifest and {library} in the library's description"
            )
        };
        if self.name != description.name {
            let quoted = |name: &str| format!("`{name}`");
            return Err(differ(
                "name",
                &quoted(&self.name),
                &quoted(&description.name),
            ));
        }
        let [ours, theirs] = [&self.aliases, &description.aliases].map(|aliases| sorted(aliases));
        if ours != theirs {
            return Err(differ(
                "aliases",
                &format!("{ours:?}"),
                &format!("{theirs:?}"),
            ));
        }
        Ok(())
    }

    /// Reads the text of a manifest that lies in `folder`. Fails with what is wrong, and its line.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let located = |span: Option<Range<usize>>, what: String| match span {
            Some(span) => format!("line {}: {what}", line(text, span.start)),
            None => what,
        };
        let written: Written = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            located(error.span(), message)
        })?;
        let Written {
            name,
            library,
            interface,
            aliases,
            rank,
            device_files,
        } = &written;
        let wrong = |span: Range<usize>, what| located(Some(span), what);
        let valid = |name: &Spanned<String>| {
            let checked = check_name(name.get_ref());
            checked.map_err(|what| wrong(name.span(), what))
        };
        valid(name)?;
        for (index, alias) in limited("aliases", aliases)?.iter().enumerate() {
            valid(alias)?;
            let twice = |known: &Spanned<String>| known.get_ref() == alias.get_ref();
            if twice(name) || aliases[..index].iter().any(twice) {
                let what = format!("`{}` is given twice", alias.get_ref());
                return Err(wrong(alias.span(), what));
            }
        }
        if library.get_ref().is_empty() || library.get_ref().contains('\0') {
            return Err(wrong(library.span(), "`library` is no path".into()));
        }
        let version = version(interface.get_ref()).ok_or_else(|| {
            let what = format!(
                "`interface` is `{}`: write major and minor version of flagos_vendor.h, such as \"1.0\"",
                interface.get_ref()
            );
            wrong(interface.span(), what)
        })?;
        let rank = match rank {
            None => DEFAULT_RANK,
            Some(rank) if RANKS.contains(rank.get_ref()) => *rank.get_ref(),
            Some(rank) => {
                let (low, high) = (RANKS.start(), RANKS.end());
                let what = format!("`rank` is {}, not from {low} to {high}", rank.get_ref());
                return Err(wrong(rank.span(), what));
            }
        };
        let device_files = limited("device_files", device_files)?.iter().map(|files| {
            DeviceFiles::parse(files.get_ref()).map_err(|what| wrong(files.span(), what))
        });
        Ok(Self {
            name: name.get_ref().clone(),
            aliases: aliases
                .iter()
                .map(|alias| alias.get_ref().clone())
                .collect(),
            library: folder.join(library.get_ref()),
            interface: version,
            rank,
            device_files: device_files.collect::<Result<_, _>>()?,
        })
    }
}

fn limited<'l, T>(key: &str, list: &'l [T]) -> Result<&'l [T], String> {
    match list.len() {
        ..=LONGEST => Ok(list),
        length => Err(format!(
            "`{key}` has {length} entries, at most {LONGEST} are taken"
        )),
    }
}

/// The line of a place in a text, from 1.
fn line(text: &str, place: usize) -> usize {
    let before = &text.as_bytes()[..place.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn version(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let (major, minor) = text.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

/// Files that exist where there is a device: a path, whose last part may be a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFiles {
    written: String,
    folder: PathBuf,
    name: Pattern,
}

impl DeviceFiles {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name), true) = (path.parent(), name, path.is_absolute()) else {
            return Err(format!("`{text}` is no absolute path of a file"));
        };
        if text.contains('\0')
            || folder
                .as_os_str()
                .as_encoded_bytes()
                .iter()
                .any(|b| b"*?[".contains(b))
        {
            return Err(format!(
                "`{text}` is no path whose last part alone is a pattern"
            ));
        }
        Ok(Self {
            written: text.to_owned(),
            folder: folder.to_owned(),
            name: Pattern::new(name).map_err(|error| format!("`{text}` is no pattern: {error}"))?,
        })
    }

    /// The path as it is written in the manifest.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Whether one of the files exists. A folder that cannot be read has none.
    #[must_use]
    pub fn exist(&self) -> bool {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return false;
        };
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names.any(|name| self.name.matches(&name.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"
name = "example"
library = "libflagos_example.so"
interface = "1.0"
aliases = ["sample"]
rank = 50
device_files = ["/dev/example[0-9]*"]
"#;

    fn parse(text: &str) -> Result<Manifest, String> {
        Manifest::parse(text, Path::new("/folder"))
    }

    #[test]
    fn a_manifest_is_read() {
        let whole = parse(WHOLE).expect("taken");
        assert_eq!(whole.library, Path::new("/folder/libflagos_example.so"));
        assert_eq!((whole.interface, whole.rank), ((1, 0), 50));
        let text = "name='a'\nlibrary='/x/y.so'\ninterface='12.345'";
        let least = parse(text).expect("taken");
        let expected = Manifest {
            name: "a".into(),
            aliases: vec![],
            library: "/x/y.so".into(),
            interface: (12, 345),
            rank: DEFAULT_RANK,
            device_files: vec![],
        };
        assert_eq!(least, expected);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (from, to, says) in [
            ("name = \"example\"", "", "line 1: missing field `name`"),
            (
                "rank",
                "ranks",
                "line 6: unknown field `ranks`, expected one of",
            ),
            (
                "\"example\"",
                "7",
                "line 2: invalid type: integer `7`, expected a string",
            ),
            (
                "\"example\"",
                "\"Chip\"",
                "line 2: `Chip` is no name of a vendor: a name is a lower-case letter",
            ),
            ("\"sample\"", "\"a b\"", "line 5: `a b` is no name"),
            (
                "\"sample\"",
                "\"example\"",
                "line 5: `example` is given twice",
            ),
            ("\"sample\"", "\"x\", \"x\"", "line 5: `x` is given twice"),
            (
                "\"libflagos_example.so\"",
                "\"\"",
                "line 3: `library` is no path",
            ),
            (
                "1.0",
                "1",
                "line 4: `interface` is `1`: write major and minor",
            ),
            ("1.0", "1.+0", "line 4: `interface` is `1.+0`"),
            ("1.0", "1.99999999999", "line 4: `interface`"),
            ("50", "0", "line 6: `rank` is 0, not from 1 to 1000"),
            ("50", "9999999999", "line 6: invalid value"),
            (
                "/dev/example[0-9]*",
                "dev",
                "line 7: `dev` is no absolute path",
            ),
            (
                "/dev/example[0-9]*",
                "/",
                "line 7: `/` is no absolute path of a file",
            ),
            (
                "/dev/example[0-9]*",
                "/d*/x",
                "line 7: `/d*/x` is no path whose last part alone",
            ),
            (
                "/dev/example[0-9]*",
                "/dev/x[",
                "line 7: `/dev/x[` is no pattern: Pattern syntax error near position 1: invalid range pattern",
            ),
            ("rank = 50", "rank = ", "line 6: "),
        ] {
            let text = WHOLE.replace(from, to);
            assert_ne!(text, WHOLE);
            let error = parse(&text).expect_err("refused");
            assert!(error.starts_with(says), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let long = format!(
            "aliases = [{}]",
            (0..65).map(|n| format!("'a{n}',")).collect::<String>()
        );
        let error = parse(&WHOLE.replace("aliases = [\"sample\"]", &long)).expect_err("refused");
        assert!(
            error.contains("`aliases` has 65 entries, at most 64"),
            "{error}"
        );
    }

    #[test]
    fn device_files_are_looked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = |name: &str| {
            let path = folder.path().join(name);
            DeviceFiles::parse(path.to_str().expect("UTF-8")).expect("valid")
        };
        assert!(!files("chip[0-9]").exist());
        std::fs::write(folder.path().join("chip_manager"), "").expect("own folder");
        assert!(!files("chip[0-9]").exist() && files("chip*").exist());
        std::fs::write(folder.path().join("chip7"), "").expect("own folder");
        assert!(files("chip[0-9]").exist() && files("chip7").exist());
        assert!(!files("absent/chip").exist());
    }

    /// The error of [`Manifest::read`] for a file.
    fn error_of(file: &Path) -> String {
        match Manifest::read(file) {
            Ok(manifest) => format!("taken: {}", manifest.library.display()),
            Err(error) => error,
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_of_any_kind_are_judged_without_waiting() {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::symlink;

        let root = tempfile::tempdir().expect("a folder");
        let root = root.path().canonicalize().expect("a folder");
        let place = |name: &str| root.join(name);
        let refused = "its manifest cannot be used: ";

        std::fs::write(place("bytes.toml"), b"name = \"\xff\"").expect("own folder");
        assert!(
            error_of(&place("bytes.toml"))
                .starts_with(&format!("{refused}stream did not contain valid UTF-8"))
        );
        std::fs::create_dir(place("folder.toml")).expect("own folder");
        assert_eq!(
            error_of(&place("folder.toml")),
            format!("{refused}it is not a regular file")
        );
        let pipe =
            std::ffi::CString::new(place("pipe.toml").as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: a path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert_eq!(
            error_of(&place("pipe.toml")),
            format!("{refused}it is not a regular file")
        );
        let endless = error_of(Path::new("/dev/zero"));
        assert!(
            endless.starts_with(&format!("{refused}it is not a regular file")),
            "{endless}"
        );
        symlink(place("circle.toml"), place("circle.toml")).expect("own folder");
        assert!(error_of(&place("circle.toml")).starts_with(refused));
        symlink(place("absent.toml"), place("dangling.toml")).expect("own folder");
        assert!(error_of(&place("dangling.toml")).contains("No such file"));
        let huge = std::fs::File::create(place("huge.toml")).expect("own folder");
        huge.set_len(1 << 40).expect("a file with holes");
        assert!(error_of(&place("huge.toml")).contains("more than 16777216"));
        std::fs::write(place("empty.toml"), "").expect("own folder");
        assert!(error_of(&place("empty.toml")).contains("missing field `name`"));

        // A library is beside the file, not beside a link to it, and may be anywhere.
        std::fs::create_dir(place("inner")).expect("own folder");
        for (library, found) in [
            ("chip.so", "inner/chip.so"),
            ("../chip.so", "inner/../chip.so"),
        ] {
            std::fs::write(
                place("inner/chip.toml"),
                WHOLE.replace("libflagos_example.so", library),
            )
            .expect("own folder");
            let _ = std::fs::remove_file(place("link.toml"));
            symlink(place("inner/chip.toml"), place("link.toml")).expect("own folder");
            assert_eq!(
                error_of(&place("link.toml")),
                format!("taken: {}", place(found).display())
            );
        }
    }

    /// A refusal is a line for people, and names a line that the text has.
    fn names_place(error: &str, text: &str) -> bool {
        let named = error
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(':'));
        let exists = named.is_none_or(|(line, _)| {
            line.parse()
                .is_ok_and(|line| (1..=text.split('\n').count()).contains(&line))
        });
        exists && !error.is_empty() && !error.contains('\n')
    }

    /// A value of TOML of any type, and whether it is a text.
    fn value() -> impl Strategy<Value = (String, bool)> {
        let text =
            "[ !#-~]{0,12}".prop_map(|text| (format!("{:?}", text.replace('\\', "/")), true));
        let other = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:e}").replace("NaN", "nan")),
            any::<bool>().prop_map(|truth| truth.to_string()),
            Just("1979-05-27T07:32:00Z".to_owned()),
            Just("{ a = 1 }".to_owned()),
            Just("99999999999999999999999999".to_owned()),
            Just(format!("{}{}", "[".repeat(200), "]".repeat(200))),
            Just("{a=".repeat(200)),
        ];
        prop_oneof![1 => text, 2 => other.prop_map(|other| (other, false))]
    }

    proptest! {
        #[test]
        fn values_of_any_type_are_judged(key in 0..6_usize, given in value()) {
            let (given, is_text) = given;
            let keys = ["name", "library", "interface", "aliases", "rank", "device_files"];
            let lines = WHOLE.lines().map(|line| match line.split_once(" = ") {
                Some((name, _)) if name == keys[key] => format!("{name} = {given}"),
                _ => line.into(),
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            match parse(&text) {
                Ok(manifest) => {
                    let rank = keys[key] == "rank" && manifest.rank.to_string() == given;
                    prop_assert!(rank || (is_text && key < 3), "{given} is {}", keys[key]);
                }
                Err(error) => prop_assert!(names_place(&error, &text), "{error}"),
            }
        }

        #[test]
        fn changed_texts_are_judged(
            changes in proptest::collection::vec((0..300_usize, 0..3_usize, "(?s).|[=\\[\\]{}#\"'.\n\\\\]{1,3}"), 1..6),
        ) {
            let mut text: Vec<char> = WHOLE.chars().collect();
            for (at, how, with) in changes {
                let at = at.min(text.len());
                match how {
                    0 => text.truncate(at),
                    1 => drop(text.splice(at..at, with.chars())),
                    _ => drop(text.splice(at..(at + 1).min(text.len()), with.chars())),
                }
            }
            let text: String = text.into_iter().collect();
            match parse(&text) {
                Ok(manifest) => prop_assert!(RANKS.contains(&manifest.rank) && manifest.library.is_absolute()),
                Err(error) => prop_assert!(names_place(&error, &text), "{error:?} of {text:?}"),
            }
        }

        #[test]
        fn any_text_is_judged(text in "(?s).{0,200}") {
            let judged = parse(&text);
            prop_assert!(judged.is_err(), "such a text has no three right keys");
        }

        #[test]
        fn values_are_judged_as_the_model_says(
            name in "[a-zA-Z_0-9-]{0,34}",
            library in "[ -~]{0,20}",
            major in any::<u32>(),
            minor in any::<u64>(),
            rank in any::<i64>(),
            aliases in proptest::collection::vec("[a-z]{1,2}", 0..3),
        ) {
            let text = format!(
                "name = {name:?}\nlibrary = {library:?}\ninterface = \"{major}.{minor}\"\nrank = {rank}\naliases = {aliases:?}"
            );
            let mut names = aliases.clone();
            names.push(name.clone());
            names.sort();
            let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
            let fits = check_name(&name).is_ok()
                && !library.is_empty()
                && u32::try_from(minor).is_ok()
                && (1..=1000).contains(&rank)
                && unique;
            match parse(&text) {
                Ok(manifest) => {
                    prop_assert!(fits);
                    prop_assert_eq!(manifest.library, Path::new("/folder").join(library));
                    prop_assert_eq!(u64::from(manifest.interface.1), minor);
                }
                Err(error) => prop_assert!(!fits, "{}", error),
            }
        }
    }
}
