//! The configuration of a process: files found, read and put in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::{Files, Includes};
use super::layer::Layer;
use super::{adapter, environment};
use super::{backends_conf, flagos_toml};
use crate::descriptions::Names;
use crate::env::{self, Env, HostSettings};
use crate::{Error, Result};

/// The configuration of files and variables.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The layers, the weakest first: `backends.conf` of an adapter, `flagos.toml`, `FLAGOS_BACKEND_CONFIG`,
    /// environment. Layers that do not exist are left out.
    pub layers: Vec<Layer>,
    /// The layers of adapters' variables, by the name of the adapter.
    pub adapters: Vec<(&'static str, Layer)>,
    /// Settings of the host vendor.
    pub host: HostSettings,
    /// The vendors' own variables that are set, by name.
    pub vendor_variables: BTreeMap<String, String>,
    /// `FLAGOS_VENDOR_PATH`: manifests of vendors, and folders of manifests.
    pub vendor_path: Vec<PathBuf>,
    /// The lock file the plan is checked against.
    pub lock: Option<PathBuf>,
    /// The levels of `FLAGOS_LOG`.
    pub log: Option<String>,
    /// `FLAGGEMS_SOURCE_DIR`.
    pub flaggems_source_dir: Option<PathBuf>,
    /// `GEMS_VENDOR`.
    pub gems_vendor: Option<String>,
    /// The `backends.conf` that routes: the one that was asked for, or else the adapter's.
    pub backends_conf: Option<PathBuf>,
    /// Every file that was read, in order.
    pub files: Vec<PathBuf>,
    /// Warnings to log, about settings that are accepted but have no effect.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the configuration. `shipped` is the `backends.conf` of an adapter's package: the weakest layer,
    /// which `FLAGOS_BACKEND_CONFIG` replaces. `names` are those of vendors that the configuration may use.
    pub fn load(
        env: &Env,
        files: &dyn Files,
        shipped: Option<&Path>,
        names: &Names,
    ) -> Result<Self> {
        let mut config = Self {
            warnings: env.check()?,
            lock: env.path(&env::LOCK),
            log: env.log()?.levels,
            vendor_variables: env.of_vendors(),
            vendor_path: vendor_path(env),
            flaggems_source_dir: env.path(&env::FLAGGEMS_SOURCE_DIR),
            gems_vendor: env.get(env::GEMS_VENDOR.name).map(str::to_owned),
            ..Self::default()
        };
        let chosen = chosen_conf(env, files, shipped)?;
        config.backends_conf = chosen.clone().or_else(|| shipped.map(Path::to_owned));
        if let (None, Some(path)) = (&chosen, shipped) {
            config.read_conf(files, path, names)?;
        }
        if let Some((path, named)) = find_toml(env, files)? {
            let mut includes = if named {
                Includes::new(files, names)
            } else {
                Includes::of_found(files, names)
            };
            let document = flagos_toml::read(&mut includes, &path, None)?;
            config.files.append(&mut includes.read);
            config.layers.push(document.layer);
            config.host = document.host;
        }
        if let Some(path) = &chosen {
            config.read_conf(files, path, names)?;
        }
        config.adapters = adapter::layers(env, names)?;
        config.layers.push(environment::layer(env, names)?);
        config.host.overlay_env(env)?;
        Ok(config)
    }

    fn read_conf(&mut self, files: &dyn Files, path: &Path, names: &Names) -> Result<()> {
        let mut includes = Includes::new(files, names);
        self.layers
            .push(backends_conf::read(&mut includes, path, None)?);
        self.files.append(&mut includes.read);
        Ok(())
    }

    /// The vendor that the configuration names, if it names one.
    #[must_use]
    pub fn vendor(&self) -> Option<&str> {
        let requested = self.layers.iter().rev().find_map(|l| l.vendor.as_ref());
        requested.map(|vendor| &*vendor.value)
    }
}

/// `FLAGOS_VENDOR_PATH`: where manifests of vendors are.
pub(crate) fn vendor_path(env: &Env) -> Vec<PathBuf> {
    absolute(env.paths(&env::VENDOR_PATH))
}

/// The paths as they are now: a program may change its working directory later.
fn absolute(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    paths.into_iter().map(absolute).collect()
}

/// The `backends.conf` that is asked for. One that does not exist may be a file of the adapter's package as Torch-FL's
/// documentation writes it: `torch_fl/backends_ascend.conf`, where older releases had those files, and
/// `torch_fl/configs/backends_ascend.conf` are relative to the folder that the package is in.
fn chosen_conf(env: &Env, files: &dyn Files, shipped: Option<&Path>) -> Result<Option<PathBuf>> {
    let requested = env.path(&env::BACKEND_CONFIG);
    let absent = requested.filter(|path| !files.exists(path));
    match absent.and_then(|path| of_package(&path, files, shipped?)) {
        Some(path) => Ok(Some(path)),
        None => given(env, &env::BACKEND_CONFIG, files),
    }
}

fn of_package(path: &Path, files: &dyn Files, shipped: &Path) -> Option<PathBuf> {
    let package = shipped.parent()?;
    let path = path.strip_prefix(".").unwrap_or(path);
    let inside = path.strip_prefix(package.file_name()?).ok()?;
    let named = inside.file_name()?;
    let places = [package.join(inside), package.join("configs").join(named)];
    places.into_iter().find(|place| files.exists(place))
}

/// The file a variable names, which must exist.
fn given(env: &Env, var: &env::Var, files: &dyn Files) -> Result<Option<PathBuf>> {
    match env.path(var) {
        Some(path) if !files.exists(&path) => {
            let message = format!("{} names {}, which is not a file", var.name, path.display());
            Err(Error::config("environment", message).with_hint("correct the path, or unset it"))
        }
        path => Ok(path),
    }
}

/// The `flagos.toml` to read, and whether the user named it or its folder.
fn find_toml(env: &Env, files: &dyn Files) -> Result<Option<(PathBuf, bool)>> {
    if let Some(path) = given(env, &env::CONFIG, files)? {
        return Ok(Some((path, true)));
    }
    let home = || env.get("HOME").map(|home| Path::new(home).join(".config"));
    let user = env.get("XDG_CONFIG_HOME").map(PathBuf::from);
    // The base directory specification says to ignore relative paths.
    let user = user.filter(|path| path.is_absolute()).or_else(home);
    let user = user.map(|directory| directory.join("flagos").join("flagos.toml"));
    // A privileged process reads no file of its working directory, which the user who starts it chooses.
    let local = (!env.is_privileged()).then(|| PathBuf::from("flagos.toml"));
    let places = [
        local.map(|path| (path, false)),
        user.map(|path| (path, true)),
    ];
    let mut places = places.into_iter().flatten();
    Ok(places.find(|(path, _)| files.exists(path)))
}
