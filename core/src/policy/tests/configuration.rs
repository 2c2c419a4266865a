//! Which files are found, and the order of the layers.

use super::*;

fn load(env: &Env, files: &BTreeMap<PathBuf, String>) -> Config {
    Config::load(env, files, None, &Names::built_in()).expect("valid configuration")
}

fn read(config: &Config) -> Vec<&str> {
    let names = config.files.iter().map(|path| path.to_str());
    names.map(|name| name.expect("UTF-8")).collect()
}

#[test]
fn flagos_toml_is_found_by_variable_then_here_then_in_the_user_configuration() {
    let files = files([
        ("chosen.toml", ""),
        ("flagos.toml", ""),
        ("/xdg/flagos/flagos.toml", ""),
        ("/home/me/.config/flagos/flagos.toml", ""),
    ]);
    let pairs = [
        ("FLAGOS_CONFIG", "chosen.toml"),
        ("XDG_CONFIG_HOME", "/xdg"),
        ("HOME", "/home/me"),
    ];
    assert_eq!(read(&load(&env(pairs), &files)), ["chosen.toml"]);
    assert_eq!(
        read(&load(&env(pairs[1..].to_vec()), &files)),
        ["flagos.toml"]
    );
    let mut files = files;
    files.remove(Path::new("flagos.toml"));
    let config = load(&env(pairs[1..].to_vec()), &files);
    assert_eq!(read(&config), ["/xdg/flagos/flagos.toml"]);
    let config = load(&env(pairs[2..].to_vec()), &files);
    assert_eq!(read(&config), ["/home/me/.config/flagos/flagos.toml"]);
    let relative = [("XDG_CONFIG_HOME", "xdg"), ("HOME", "/home/me")];
    let config = load(&env(relative), &files);
    assert_eq!(read(&config), ["/home/me/.config/flagos/flagos.toml"]);
    assert!(read(&load(&env([]), &files)).is_empty());
}

#[test]
fn environment_beats_backends_conf_beats_flagos_toml_beats_the_shipped_file() {
    let files = files([
        (
            "shipped.conf",
            "mm = cuda\nmm.out = cuda\nadd.Tensor = cuda\nadd.Scalar = cuda\n",
        ),
        (
            "flagos.toml",
            "[ops]\n\"mm.out\" = \"cpu\"\n\"add.Tensor\" = \"cuda\"\nmm = \"cuda\"\n",
        ),
        ("my.conf", "add.Tensor = cpu\nmm = flaggems\n"),
    ]);
    let shipped = Path::new("shipped.conf");
    let decided = |env: &Env, op: &str| {
        let config = Config::load(env, &files, Some(shipped), &Names::built_in()).expect("valid");
        let policy = Policy::from_layers(config.layers.iter());
        let plan = resolve_all(&registry(), &policy).expect("a plan");
        plan.find(op).expect("known").route.source.to_string()
    };
    let with_conf = [
        ("FLAGOS_BACKEND_CONFIG", "my.conf"),
        ("FLAGOS_OP_mm", "cpu"),
    ];
    assert_eq!(decided(&env(with_conf), "mm"), "the variable FLAGOS_OP_mm");
    assert_eq!(decided(&env(with_conf), "add.Tensor"), "my.conf:1");
    assert_eq!(decided(&env(with_conf), "mm.out"), "flagos.toml:2");
    // FLAGOS_BACKEND_CONFIG replaces the shipped file.
    assert_eq!(
        decided(&env(with_conf), "add.Scalar"),
        "the built-in default"
    );
    assert_eq!(decided(&env([]), "add.Scalar"), "shipped.conf:4");
    assert_eq!(decided(&env([]), "mm"), "flagos.toml:4");
}

#[test]
fn a_path_of_the_package_finds_the_shipped_file() {
    let files = files([
        ("/site/torch_fl/backends.conf", ""),
        ("/site/torch_fl/configs/backends_ascend.conf", "mm = cpu\n"),
        ("torch_fl/backends_cuda.conf", "mm = cpu\n"),
    ]);
    let shipped = Path::new("/site/torch_fl/backends.conf");
    let found = |path: &str| {
        let env = env([("FLAGOS_BACKEND_CONFIG", path)]);
        let config = Config::load(&env, &files, Some(shipped), &Names::built_in());
        config.map(|config| config.backends_conf.expect("one is read"))
    };
    let ascend = Path::new("/site/torch_fl/configs/backends_ascend.conf");
    for path in [
        "torch_fl/backends_ascend.conf",
        "./torch_fl/configs/backends_ascend.conf",
    ] {
        assert_eq!(found(path).expect("found"), ascend);
    }
    // A file that is there is meant.
    let there = "torch_fl/backends_cuda.conf";
    assert_eq!(found(there).expect("found"), Path::new(there));
    for absent in [
        "backends_ascend.conf",
        "other/backends_ascend.conf",
        "torch_fl/x.conf",
        "torch_fl",
    ] {
        assert!(found(absent).is_err(), "{absent}");
    }
    let nothing = Config::load(&env([]), &files, Some(shipped), &Names::built_in());
    assert_eq!(
        nothing.expect("valid").backends_conf.as_deref(),
        Some(shipped)
    );
}

#[test]
fn the_rest_of_the_configuration_is_carried_along() {
    let files = files([("flagos.toml", "host.devices = 2")]);
    let pairs = [
        ("FLAGOS_VENDOR", "host"),
        ("FLAGOS_LOCK", "flagos.lock"),
        ("FLAGOS_LOG", "debug"),
        ("FLAGGEMS_SOURCE_DIR", "/src/flag_gems"),
        ("GEMS_VENDOR", "metax"),
        ("FLAGOS_HOST_SEED", "3"),
        ("FLAGOS_WHEEL_LOCAL", "x"),
    ];
    let config = load(&env(pairs), &files);
    assert_eq!(config.vendor(), Some("host"));
    assert_eq!(config.lock.as_deref(), Some(Path::new("flagos.lock")));
    assert_eq!(config.log.as_deref(), Some("debug"));
    assert_eq!(config.gems_vendor.as_deref(), Some("metax"));
    assert_eq!(
        config.flaggems_source_dir.as_deref(),
        Some(Path::new("/src/flag_gems"))
    );
    assert_eq!((config.host.devices, config.host.seed), (Some(2), Some(3)));
    assert_eq!(config.warnings.len(), 1);
}

#[test]
fn files_on_disk_are_read_and_cycles_between_links_are_seen() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("flagos.toml");
    std::fs::write(&path, "[ops]\nmm = \"cpu\"\n").expect("written");
    let document = read_flagos_toml(&Disk, &path, &Names::built_in()).expect("valid");
    assert_eq!(document.layer.ops[0].1.source, Source::file(&path, 2));

    std::fs::write(&path, "include = \"link.toml\"").expect("written");
    #[cfg(unix)]
    {
        let link = directory.path().join("link.toml");
        std::os::unix::fs::symlink(&path, link).expect("linked");
        let error = read_flagos_toml(&Disk, &path, &Names::built_in()).expect_err("a cycle");
        assert!(error.message().starts_with("include cycle"), "{error}");
    }
    let error =
        read_flagos_toml(&Disk, directory.path(), &Names::built_in()).expect_err("a directory");
    assert!(error.message().starts_with("cannot read"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().expect("text")).expect("no zero");
    // SAFETY: `name` is a C string for the length of the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let path = directory.path().join("flagos.toml");
    std::fs::write(&path, "include = [\"pipe\"]").expect("written");
    let error = read_flagos_toml(&Disk, &path, &Names::built_in())
        .expect_err("a pipe")
        .to_string();
    assert!(
        error.contains("not a regular file") && error.contains("flagos.toml:1"),
        "{error}"
    );
    assert!(read_flagos_toml(&Disk, Path::new("/dev/zero"), &Names::built_in()).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_without_end_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("flagos.toml");
    let file = std::fs::File::create(&path).expect("created");
    file.set_len(1 << 40).expect("a hole");
    let error = read_flagos_toml(&Disk, &path, &Names::built_in()).expect_err("too long");
    assert!(error.message().contains("1099511627776 bytes"), "{error}");
}

#[cfg(unix)]
#[test]
fn what_is_found_belongs_to_this_user_or_root() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("flagos.toml");
    std::fs::write(&path, "").expect("written");
    Disk.read_found(&path).expect("it is ours");
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        return; // only root can change a file's owner
    }
    let error = Disk.read_found(&path).expect_err("it is another user's");
    assert!(error.to_string().contains("uid 12345"), "{error}");
    assert!(remedy(&error, &path, "").contains("FLAGOS_CONFIG="));
    Disk.read(&path).expect("it is named");
}

#[cfg(unix)]
#[test]
fn a_file_that_every_user_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("changed");
        path
    };
    let included = write("site.toml", "ops.mm = \"cpu\"\n", 0o646);
    let path = write("flagos.toml", "# first\ninclude = \"site.toml\"\n", 0o664);
    let error = read_flagos_toml(&Disk, &path, &Names::built_in())
        .expect_err("anybody may have written it");
    let text = error.to_string();
    let remedy = format!("`chmod o-w {}`", included.display());
    for part in ["every user may write", "flagos.toml:2", remedy.as_str()] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    write("site.toml", "ops.mm = \"cpu\"\n", 0o664);
    read_flagos_toml(&Disk, &path, &Names::built_in()).expect("only its group may write to it");
    let conf = write("backends.conf", "mm = cpu\n", 0o666);
    assert!(read_backends_conf(&Disk, &conf, &Names::built_in()).is_err());
}

#[test]
fn a_privileged_process_opens_no_file_that_a_user_names() {
    let files = files([
        ("flagos.toml", "host.devices = 2"),
        ("/home/me/.config/flagos/flagos.toml", "host.devices = 3"),
        ("mine.toml", "host.devices = 4"),
    ]);
    let pairs = [
        ("HOME", "/home/me"),
        ("FLAGOS_CONFIG", "mine.toml"),
        ("FLAGGEMS_SOURCE_DIR", "/src/flag_gems"),
        ("FLAGOS_HOST_SEED", "3"),
        ("FLAGOS_VENDOR_PATH", "/mine:/other"),
    ];
    let ordinary = load(&env(pairs), &files);
    assert_eq!(
        (ordinary.host.devices, ordinary.warnings.len()),
        (Some(4), 0)
    );
    let privileged = load(&env(pairs).privileged(), &files);
    assert_eq!(
        (privileged.host.devices, privileged.host.seed),
        (None, Some(3))
    );
    assert_eq!(privileged.flaggems_source_dir, None);
    assert_eq!(ordinary.vendor_path, ["/mine", "/other"].map(Path::new));
    assert!(privileged.vendor_path.is_empty());
    let warned: Vec<_> = privileged
        .warnings
        .iter()
        .filter_map(|w| w.split(' ').next())
        .collect();
    assert_eq!(
        warned,
        ["FLAGGEMS_SOURCE_DIR", "FLAGOS_CONFIG", "FLAGOS_VENDOR_PATH"]
    );
}
