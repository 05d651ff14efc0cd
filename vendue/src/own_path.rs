//! Instances find this program as `vendue` on their `PATH`: so the examples work from a checkout.

use std::{
    env, fs, io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

/// How the directory of a copy is called.
const COPY: &str = "vendue-bin-";

/// Removes the copy, if there is one, when a program that runs cells ends.
#[derive(Debug)]
pub(crate) struct OwnPath(Option<PathBuf>);

impl Drop for OwnPath {
    fn drop(&mut self) {
        if let Some(copy) = &self.0 {
            // at worst a file stays in the temporary directory
            let _ = fs::remove_dir_all(copy);
        }
    }
}

/// Puts the program's directory first on `PATH`, by starting the program anew (same process, same
/// arguments) where it is not. Root's instances run as somebody else: when others cannot reach the
/// program, a copy that they can reach serves them.
pub(crate) fn ensure() -> io::Result<OwnPath> {
    let path = env::var_os("PATH").unwrap_or_default();
    let first = env::split_paths(&path).next().unwrap_or_default();
    let exe = env::current_exe()?;
    let home = exe.parent().unwrap_or(Path::new("/")).to_owned();
    if is_copy(&first) {
        return Ok(OwnPath(Some(first)));
    }
    let fits = exe.file_name().is_some_and(|name| name == "vendue");
    let as_root = rustix::process::geteuid().is_root();
    let serves = fits && (!as_root || others_reach(&exe));
    let mut found = env::split_paths(&path).map(|dir| dir.join("vendue"));
    let found = found.find(|file| file.is_file());
    if serves && found.is_some_and(|file| file.canonicalize().is_ok_and(|file| file == exe)) {
        return Ok(OwnPath(None));
    }
    let home = if serves { home } else { copy_of(&exe)? };
    let parts = [home].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(parts).map_err(io::Error::other)?;
    let mut args = env::args_os();
    let mut again = Command::new(&exe);
    if let Some(name) = args.next() {
        again.arg0(name);
    }
    // returns only when it fails
    Err(again.args(args).env("PATH", path).exec())
}

fn is_copy(dir: &Path) -> bool {
    let named = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(COPY);
    let ours = |dir: fs::Metadata| dir.uid() == rustix::process::geteuid().as_raw();
    dir.parent() == Some(&env::temp_dir())
        && dir.file_name().is_some_and(named)
        && dir.metadata().is_ok_and(ours)
}

/// Whether any user may execute the file.
fn others_reach(file: &Path) -> bool {
    let allows = |path: &Path| {
        let mode = path.metadata().map(|m| m.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o001 != 0)
    };
    file.ancestors().all(allows)
}

fn copy_of(exe: &Path) -> io::Result<PathBuf> {
    let home = tempfile::Builder::new()
        .prefix(COPY)
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()?;
    let copy = home.path().join("vendue");
    fs::copy(exe, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(home.keep())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_under_a_private_directory_is_out_of_reach() {
        let home = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        let file = home.path().join("program");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, open.clone()).unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!others_reach(&file));
        fs::set_permissions(home.path(), open).unwrap();
        assert_eq!(others_reach(&file), others_reach(&env::temp_dir()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!others_reach(&file));
    }

    #[test]
    fn a_copy_can_be_executed_by_others_and_is_known_as_one() {
        let file = env::current_exe().unwrap();
        let copy = copy_of(&file).unwrap();
        assert!(is_copy(&copy));
        assert!(others_reach(&copy.join("vendue")) || !others_reach(&env::temp_dir()));
        drop(OwnPath(Some(copy.clone())));
        assert!(!copy.exists());
    }
}
