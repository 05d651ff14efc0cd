//! The files with the secrets of a connection, and who may read them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{
    BusError, Context, NatsOptions,
    context::{self, non_empty, path},
};

const READ: u32 = 0o004;
const PASS: u32 = 0o001;

/// Returns the files from which a connection with these options takes a secret.
pub fn secret_files(options: &NatsOptions) -> Result<Vec<PathBuf>, BusError> {
    let mut files: Vec<PathBuf> = [&options.creds, &options.nkey, &options.tls.key]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if let Some(name) = &options.context {
        let (context, _) = context::read(name)?;
        if context.has_secret() {
            files.push(context::file(name));
        }
        files.extend(of_context(&context));
    }
    Ok(files)
}

fn of_context(context: &Context) -> impl Iterator<Item = PathBuf> {
    let named = [&context.creds, &context.nkey, &context.key];
    named
        .into_iter()
        .filter_map(|text| non_empty(text))
        .map(path)
}

/// Returns whether every user of the machine may read this file: it and all directories leading to it are open.
pub fn is_open_to_all(file: &Path) -> bool {
    let allows = |path: &Path, bit: u32| {
        let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
        mode.is_ok_and(|mode| mode & bit != 0)
    };
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    allows(&file, READ)
        && file
            .ancestors()
            .skip(1)
            .all(|directory| allows(directory, PASS))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_is_open_to_all_with_its_directories_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c1.nk");
        fs::write(&file, "SU").unwrap();
        for (of_directory, of_file, expected) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o755, 0o640, false),
            (0o755, 0o600, false),
            (0o700, 0o644, false),
            (0o750, 0o644, false),
        ] {
            set(directory.path(), of_directory);
            set(&file, of_file);
            assert_eq!(
                is_open_to_all(&file),
                expected,
                "{of_directory:o} {of_file:o}"
            );
        }
        assert!(!is_open_to_all(&directory.path().join("missing")));
    }

    #[test]
    fn secrets_are_in_the_files_of_the_options_and_of_the_context() {
        let directory = tempfile::tempdir().unwrap();
        let context = directory.path().join("c1.json");
        let name = context.to_str().unwrap().to_owned();
        let files = |text: &str| {
            fs::write(&context, text).unwrap();
            secret_files(&NatsOptions {
                nkey: Some("own.nk".into()),
                context: Some(name.clone()),
                ..NatsOptions::default()
            })
            .unwrap()
        };
        let text = r#"{"nkey":"/k/c1.nk","ca":"/k/ca.pem","cert":"/k/c1.pem","key":"/k/c1.key"}"#;
        assert_eq!(
            files(text),
            ["own.nk", "/k/c1.nk", "/k/c1.key"].map(PathBuf::from)
        );
        assert_eq!(
            files(r#"{"token":"t"}"#),
            ["own.nk", &name].map(PathBuf::from)
        );
        assert_eq!(
            files(r#"{"url":"nats://a:b@h"}"#),
            ["own.nk", &name].map(PathBuf::from)
        );
    }
}
