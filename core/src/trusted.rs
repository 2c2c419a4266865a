//! Files that decide which code this process runs. A user who may write such a file, or put another one in its place,
//! decides it too, so these files are refused.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The reason why a file that can be opened is not used.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The file is a pipe, a device or a folder, whose reading may wait for ever, or never end.
    NotRegular,
    /// Every user may write the file.
    WorldWritable,
    /// The file was found and not named, and belongs to this user, who is neither root nor the process's.
    OwnedBy(u32),
    /// The file has this many bytes, more than [`LONGEST`].
    TooLong(u64),
    /// Every user may put another file into this folder, on the way to the file.
    FolderWorldWritable(PathBuf),
    /// A folder on the way to the file belongs to this user, who is neither root nor the process's.
    FolderOwnedBy(PathBuf, u32),
    /// A link on the way to the file belongs to this user, who is neither root nor the process's.
    LinkOwnedBy(PathBuf, u32),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str("it is not a regular file"),
            Self::WorldWritable => f.write_str("every user may write to it"),
            Self::OwnedBy(user) => write!(f, "it belongs to another user (uid {user})"),
            Self::TooLong(length) => {
                write!(f, "it has {length} bytes, more than {LONGEST}")
            }
            Self::FolderWorldWritable(folder) => {
                write!(f, "every user may write to the folder {}", folder.display())
            }
            Self::FolderOwnedBy(folder, user) => write!(
                f,
                "the folder {} belongs to another user (uid {user})",
                folder.display()
            ),
            Self::LinkOwnedBy(link, user) => write!(
                f,
                "the link {} belongs to another user (uid {user})",
                link.display()
            ),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The reason in an error of [`read`] or [`check`], if that is why it failed.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refused)
    }
}

/// The most bytes of a text file. A lock file of all of torch's operators has 0.2 MB.
const LONGEST: u64 = 16 << 20;

/// Opens, checks and reads a text file. The checks are of the open file, which nobody can replace by another one.
/// Opening never waits, not even for the writer of a pipe. With `own` the file has to belong to root or to the
/// process's user.
pub(crate) fn read(path: &Path, own: bool) -> io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Refused::NotRegular.into());
    }
    if about.len() > LONGEST {
        return Err(Refused::TooLong(about.len()).into());
    }
    #[cfg(unix)]
    {
        if users::all_write(&about) {
            return Err(Refused::WorldWritable.into());
        }
        match users::stranger(&about) {
            Some(user) if own => return Err(Refused::OwnedBy(user).into()),
            _ => {}
        }
    }
    let mut text = String::new();
    // A file that grows while it is read is cut here.
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// The canonical path of a file that code is loaded from, or that names such a file, after checks of the file and of
/// all folders and links on the way to it: they belong to root or the process's user, and no other user may write the
/// file, or replace it. A folder with the sticky bit, such as `/tmp`, lets every user write and only owners replace.
///
/// The path stays the checked file's, so that it may be opened later: the walk begins at the root, and nobody else can
/// replace an entry of a folder that has passed.
pub(crate) fn check(path: &Path) -> io::Result<PathBuf> {
    #[cfg(unix)]
    let found = users::walk(path)?;
    #[cfg(not(unix))]
    let found = path.canonicalize()?;
    let about = found.symlink_metadata()?;
    if !about.is_file() {
        return Err(Refused::NotRegular.into());
    }
    #[cfg(unix)]
    {
        if users::all_write(&about) {
            return Err(Refused::WorldWritable.into());
        }
        if let Some(user) = users::stranger(&about) {
            return Err(Refused::OwnedBy(user).into());
        }
    }
    Ok(found)
}

#[cfg(unix)]
mod users {
    use std::ffi::OsString;
    use std::fs::Metadata;
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Component, Path, PathBuf};

    use super::Refused;

    const WRITABLE_BY_ALL: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    /// The most links on the way to a file, as in Linux.
    const MOST_LINKS: u32 = 40;

    pub(super) fn all_write(about: &Metadata) -> bool {
        about.mode() & WRITABLE_BY_ALL != 0
    }

    /// The owner, unless that is root or the process's user.
    pub(super) fn stranger(about: &Metadata) -> Option<u32> {
        // SAFETY: geteuid takes nothing and always succeeds.
        let own = unsafe { libc::geteuid() };
        Some(about.uid()).filter(|user| ![0, own].contains(user))
    }

    /// The canonical path. Every folder on the way is checked before an entry of it is looked up, and every link
    /// before it is followed.
    pub(super) fn walk(path: &Path) -> io::Result<PathBuf> {
        let mut found = PathBuf::from("/");
        check_folder(&found, &found.symlink_metadata()?)?;
        let mut links = 0;
        let mut ahead = parts(&std::path::absolute(path)?);
        while let Some(part) = ahead.pop() {
            if part == ".." {
                found.pop();
                continue;
            }
            let next = found.join(part);
            let about = next.symlink_metadata()?;
            if about.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                if let Some(user) = stranger(&about) {
                    return Err(Refused::LinkOwnedBy(next, user).into());
                }
                let target = next.read_link()?;
                if target.is_absolute() {
                    found = PathBuf::from("/");
                }
                ahead.extend(parts(&target));
                continue;
            }
            if about.is_dir() {
                // The last part, which is to be a file, is judged as one.
                if !ahead.is_empty() {
                    check_folder(&next, &about)?;
                }
            } else if !ahead.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
            }
            found = next;
        }
        Ok(found)
    }

    /// The parts of a path, the last one first.
    fn parts(path: &Path) -> Vec<OsString> {
        let parts = path.components().rev().filter_map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
            _ => None,
        });
        parts.collect()
    }

    fn check_folder(folder: &Path, about: &Metadata) -> io::Result<()> {
        if all_write(about) && about.mode() & STICKY == 0 {
            return Err(Refused::FolderWorldWritable(folder.into()).into());
        }
        match stranger(about) {
            Some(user) => Err(Refused::FolderOwnedBy(folder.into(), user).into()),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    }

    fn verdict(path: &Path) -> String {
        let checked = check(path);
        checked.map_or_else(|error| error.to_string(), |_| "trusted".into())
    }

    #[test]
    fn what_every_user_may_write_or_replace_is_refused() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("inner").join("vendors");
        fs::create_dir_all(&folder).expect("own folder");
        let file = folder.join("library.so");
        fs::write(&file, "").expect("own file");
        assert_eq!(verdict(&file), "trusted");

        allow(&file, 0o666);
        assert_eq!(verdict(&file), "every user may write to it");
        allow(&file, 0o664);
        for (open, says) in [(&folder, "vendors"), (&root.path().join("inner"), "inner")] {
            allow(open, 0o777);
            let refusal = verdict(&file);
            assert!(
                refusal.starts_with("every user may write to the folder")
                    && refusal.ends_with(says),
                "{refusal}"
            );
            allow(open, 0o1777);
            assert_eq!(
                verdict(&file),
                "trusted",
                "owners alone replace a file there"
            );
            allow(open, 0o755);
        }
        assert_eq!(verdict(&file), "trusted");
        assert_eq!(verdict(&folder), "it is not a regular file");
        assert!(verdict(&folder.join("absent")).contains("No such file"));

        let open = root.path().join("open");
        fs::create_dir(&open).expect("own folder");
        let link = open.join("link.so");
        symlink(&file, &link).expect("own folder");
        assert_eq!(verdict(&link), "trusted");
        allow(&open, 0o777);
        assert!(verdict(&link).starts_with("every user may write to the folder"));
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        // SAFETY: geteuid takes nothing and always succeeds.
        if unsafe { libc::geteuid() } != 0 {
            return; // only root gives files away
        }
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("vendors");
        fs::create_dir(&folder).expect("own folder");
        let file = folder.join("library.so");
        fs::write(&file, "").expect("own file");
        let give = |path: &Path, user| {
            std::os::unix::fs::chown(path, Some(user), None).expect("root may");
        };
        give(&file, 12_345);
        assert_eq!(verdict(&file), "it belongs to another user (uid 12345)");
        assert!(Refused::of(&read(&file, true).expect_err("refused")).is_some());
        assert!(read(&file, false).is_ok());
        give(&file, 0);

        let inner = folder.join("inner");
        fs::create_dir(&inner).expect("own folder");
        let deep = inner.join("library.so");
        fs::write(&deep, "").expect("own file");
        let link = root.path().join("link");
        symlink(&inner, &link).expect("own folder");
        let linked = link.join("library.so");
        let back = inner.join("..").join("library.so");
        for path in [&file, &deep, &linked, &back] {
            assert_eq!(verdict(path), "trusted");
        }
        give(&folder, 12_345);
        let refusal = format!(
            "the folder {} belongs to another user (uid 12345)",
            folder.display()
        );
        for path in [&file, &deep, &linked, &back] {
            assert_eq!(
                verdict(path),
                refusal,
                "its owner may replace what is in it"
            );
        }
        give(&folder, 0);
        std::os::unix::fs::lchown(&link, Some(12_345), None).expect("root may");
        assert_eq!(
            verdict(&linked),
            format!(
                "the link {} belongs to another user (uid 12345)",
                link.display()
            )
        );
    }
}
