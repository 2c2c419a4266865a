//! The text of a vendor's manifest.

use std::path::Path;

use flagos_core::vendors::discovery::Manifest;

const FOLDER: &str = "/folder";

/// Reads `data` as a manifest.
///
/// # Panics
/// When a refusal is no line for people, names a line that the text does not have, or when a manifest that is taken,
/// printed and read again differs.
pub fn vendor_manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Manifest::parse(text, Path::new(FOLDER)) {
        Ok(manifest) => {
            assert!((1..=1000).contains(&manifest.rank), "{manifest:?}");
            assert!(manifest.library.is_absolute(), "{manifest:?}");
            for name in manifest.aliases.iter().chain([&manifest.name]) {
                assert!((1..=31).contains(&name.len()) && name.is_ascii(), "{name}");
            }
            let again = Manifest::parse(&printed(&manifest), Path::new(FOLDER));
            assert_eq!(again.as_ref(), Ok(&manifest), "printed and read again");
        }
        Err(error) => {
            assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
            if let Some((line, _)) = error
                .strip_prefix("line ")
                .and_then(|rest| rest.split_once(':'))
            {
                let line: usize = line.parse().expect("a number");
                assert!((1..=text.split('\n').count()).contains(&line), "{error}");
            }
        }
    }
}

fn printed(manifest: &Manifest) -> String {
    let library = manifest.library.to_str().expect("UTF-8, as the text");
    let files = manifest.device_files.iter();
    let files: Vec<_> = files.map(|files| quoted(files.written())).collect();
    let aliases: Vec<_> = manifest.aliases.iter().map(|alias| quoted(alias)).collect();
    let (major, minor) = manifest.interface;
    format!(
        "name = {}\nlibrary = {}\ninterface = \"{major}.{minor}\"\nrank = {}\naliases = [{}]\ndevice_files = [{}]\n",
        quoted(&manifest.name),
        quoted(library),
        manifest.rank,
        aliases.join(", "),
        files.join(", "),
    )
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.into(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
