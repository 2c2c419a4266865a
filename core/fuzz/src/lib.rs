//! Checks that hold for any text given as configuration, and for anything that a vendor's library says. The fuzz targets
//! call them; so does `cargo test`, on a stable toolchain, with texts made from the seeds.

mod manifest;
mod tables;

pub use manifest::vendor_manifest;
pub use tables::vendor_tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flagos_core::descriptions::Names;
use flagos_core::policy::{
    Layer, Policy, read_backends_conf, read_flagos_toml, resolve_all, to_backends_conf, to_toml,
};
use flagos_core::registry::{Implementation, Kind, Registry};
use flagos_core::{Error, ErrorKind};

const TOML: &str = "flagos.toml";
const CONF: &str = "backends.conf";

/// The text, and a file it may include.
fn files(name: &str, text: &str) -> BTreeMap<PathBuf, String> {
    let other = match name {
        TOML => "ops.mm = \"cpu\"",
        _ => "mm = cpu",
    };
    let texts = [(name, text), ("other", other)];
    let owned = texts.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    owned.into_iter().collect()
}

/// Reads `data` as a `flagos.toml`.
///
/// # Panics
/// When an error does not name its line, or a text that is read, printed and read again differs.
pub fn flagos_toml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read =
        |text: &str| read_flagos_toml(&files(TOML, text), Path::new(TOML), &Names::built_in());
    match read(text) {
        Ok(document) => {
            let again = read(&to_toml(&document.layer)).map(|document| document.layer);
            same(&document.layer, &dedup(&document.layer), again);
            resolve(&document.layer);
        }
        Err(error) => located(&error, text),
    }
}

/// Reads `data` as a `backends.conf`.
///
/// # Panics
/// As [`flagos_toml`].
pub fn backends_conf(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read =
        |text: &str| read_backends_conf(&files(CONF, text), Path::new(CONF), &Names::built_in());
    match read(text) {
        Ok(layer) => {
            same(&layer, &layer, read(&to_backends_conf(&layer)));
            resolve(&layer);
        }
        Err(error) => located(&error, text),
    }
}

/// A layer without the routes of an include that the file replaced, because `flagos.toml` has no form for an
/// operator that is listed twice.
fn dedup(layer: &Layer) -> Layer {
    let mut kept = layer.clone();
    kept.ops.clear();
    for (index, (pattern, route)) in layer.ops.iter().enumerate() {
        if layer.ops[index + 1..]
            .iter()
            .all(|(later, _)| later != pattern)
        {
            kept.ops.push((pattern.clone(), route.clone()));
        }
    }
    kept
}

fn routes(layer: &Layer) -> Vec<String> {
    let ops = layer.ops.iter();
    ops.map(|(pattern, route)| format!("{pattern:?} {:?}", route.value))
        .collect()
}

fn same(original: &Layer, routed: &Layer, again: Result<Layer, Error>) {
    // A text that lists an operator twice cannot be printed as `flagos.toml`.
    let again = match again {
        Ok(layer) => layer,
        Err(_) if original.ops.len() != routed.ops.len() => return,
        Err(error) => panic!("what was printed is refused: {error}"),
    };
    assert_eq!(routes(&again), routes(routed), "printed and read again");
}

/// The one registry for all texts, with a few operators, because slots are never freed.
fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut registry = Registry::new();
        for op in ["mm", "add.Tensor", "add.Scalar"] {
            let native = Implementation::new("cpu.native", Kind::Vendor, "cpu").vendor("host");
            let registered = registry.register(op, native.into());
            registered.expect("a fresh implementation");
        }
        registry
    })
}

/// Resolution must end in a plan or in a configuration error.
fn resolve(layer: &Layer) {
    match resolve_all(registry(), &Policy::from_layers([layer])) {
        Ok(plan) => assert_eq!(plan.len(), registry().len()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Config, "{error}"),
    }
}

fn located(error: &Error, text: &str) {
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    let at = error.context("at").unwrap_or_default();
    let line = at.rsplit(':').next().and_then(|line| line.parse().ok());
    let lines = text.split('\n').count();
    assert!(
        line.is_some_and(|line| (1..=lines).contains(&line)),
        "{error}"
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    /// Xorshift, which makes the same texts in every short run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end.max(1) as u64) as usize
        }
    }

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(target);
        let entries = std::fs::read_dir(directory).expect("the seeds are checked in");
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("readable").path())
            .collect();
        paths.sort();
        let texts = paths
            .iter()
            .map(|path| std::fs::read(path).expect("readable"));
        texts.collect()
    }

    /// Inputs of a target, unless `FUZZ_SECONDS` asks for as many as there is time for.
    const SHORT: u64 = 20_000;

    /// Calls `check` with every seed, and with seeds that are cut, spliced and overwritten.
    fn mutate(target: &str, check: fn(&[u8])) {
        let long = std::env::var("FUZZ_SECONDS")
            .map(|text| text.parse().expect("seconds"))
            .ok();
        let seeds = seeds(target);
        assert!(seeds.len() > 2, "{target} has seeds");
        seeds.iter().for_each(|seed| check(seed));
        let time = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64;
        let mut random = Random(long.map_or(0x9e37_79b9_7f4a_7c15, |_: u64| time | 1));
        let tokens = b"=|.*:#\"'[]{}\n\r\t ,\\-0a\xff\xc3";
        let begun = Instant::now();
        for count in 0.. {
            match long {
                None if count == SHORT => break,
                Some(seconds) if begun.elapsed().as_secs() >= seconds => {
                    println!("{target}: {count} inputs in {seconds} s");
                    break;
                }
                _ => {}
            }
            let mut text = seeds[random.below(seeds.len())].clone();
            for _ in 0..1 + random.below(6) {
                let at = random.below(text.len() + 1);
                match random.below(4) {
                    0 => text.truncate(at),
                    1 => text.insert(at, tokens[random.below(tokens.len())]),
                    2 if at < text.len() => text[at] = tokens[random.below(tokens.len())],
                    _ => {
                        let other = &seeds[random.below(seeds.len())];
                        let from = random.below(other.len());
                        let end = from + random.below(other.len() - from);
                        text.splice(at..at, other[from..end].iter().copied());
                    }
                }
            }
            check(&text);
        }
    }

    #[test]
    fn flagos_toml() {
        mutate("flagos_toml", super::flagos_toml);
    }

    #[test]
    fn vendor_manifest() {
        mutate("vendor_manifest", super::vendor_manifest);
    }

    #[test]
    fn vendor_tables() {
        mutate("vendor_tables", super::vendor_tables);
    }

    #[test]
    fn backends_conf() {
        mutate("backends_conf", super::backends_conf);
    }
}
