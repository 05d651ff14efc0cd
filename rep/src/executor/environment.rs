//! The environment of an instance.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use shared::wire::Work;

use super::ports::Port;

/// The PATH of instances if the rep itself has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An instance's environment: nothing of the rep's but `PATH`, with the directory of the rep's own
/// program in front, so that an instance can run `vendue` where it is not installed.
pub(super) fn environment(
    cell: &str,
    zone: &str,
    work: &Work,
    port: Option<&Port>,
    memory_mb: u64,
    directory: &Path,
) -> Result<BTreeMap<OsString, OsString>, String> {
    let path = path_for(
        std::env::current_exe().ok().as_deref(),
        std::env::var_os("PATH"),
    );
    let mut environment: BTreeMap<OsString, OsString> = [
        ("PATH", path),
        ("HOME", directory.into()),
        ("TMPDIR", directory.into()),
        ("APP", work.app.clone().into()),
        ("INSTANCE_INDEX", work.index.to_string().into()),
        ("INSTANCE_ID", work.instance.to_string().into()),
        ("CELL", cell.into()),
        ("ZONE", zone.into()),
        ("MEMORY_LIMIT", format!("{memory_mb}m").into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value))
    .collect();
    if let Some(trace) = &work.traceparent {
        environment.insert("TRACEPARENT".into(), trace.into());
    }
    if let Some(port) = port {
        environment.insert("PORT".into(), port.number().to_string().into());
    }
    for (name, value) in work.run.iter().flat_map(|run| &run.env) {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err("run.env: a variable cannot be set".into());
        }
        environment.insert(name.into(), value.into());
    }
    Ok(environment)
}

/// The directory of `program`, then those of `path`.
fn path_for(program: Option<&Path>, path: Option<OsString>) -> OsString {
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    let own = program.and_then(Path::parent).map(Path::to_owned);
    let whole = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)));
    // PATH cannot express a directory with a colon in its name
    whole.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, sync::Arc};

    use placement::Run;
    use shared::InstanceId;

    use super::*;

    fn work(env: &[(&str, &str)]) -> Work {
        let json = serde_json::json!({"instance": InstanceId::nil(), "app": "web", "index": 3,
            "memory_mb": 64, "disk_mb": 1});
        let run = Run {
            env: env
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            ..Run::default()
        };
        Work {
            run: Some(Arc::new(run)),
            ..serde_json::from_value(json).unwrap()
        }
    }

    #[test]
    fn the_request_overrides_the_environment() {
        let work = work(&[("ZONE", "mine"), ("X", "1")]);
        let found = environment("a", "z1", &work, None, 64, Path::new("/d")).unwrap();
        let expected = [
            ("APP", "web"),
            ("INSTANCE_INDEX", "3"),
            ("CELL", "a"),
            ("MEMORY_LIMIT", "64m"),
            ("TMPDIR", "/d"),
            ("ZONE", "mine"),
            ("X", "1"),
        ];
        for (name, value) in expected {
            assert_eq!(found[OsStr::new(name)], value, "{name}");
        }
        assert!(!found.contains_key(OsStr::new("PORT")));
        assert!(found.contains_key(OsStr::new("PATH")));
    }

    #[test]
    fn the_directory_of_the_program_is_first_in_path() {
        let path = |program: &str, path: Option<&str>| {
            path_for(Some(Path::new(program)), path.map(Into::into))
        };
        assert_eq!(
            path("/opt/vendue", Some("/bin:/usr/bin")),
            "/opt:/bin:/usr/bin"
        );
        assert!(
            path("/opt/vendue", None)
                .to_str()
                .unwrap()
                .starts_with("/opt:/usr/")
        );
        assert_eq!(path("/a:b/vendue", Some("/bin")), "/bin");
        assert_eq!(path_for(None, Some("/bin".into())), "/bin");
    }

    #[test]
    fn names_that_no_environment_can_hold_are_refused() {
        for name in ["", "A=B", "A\0"] {
            let work = work(&[(name, "1")]);
            assert!(environment("a", "z1", &work, None, 64, Path::new("/d")).is_err());
        }
    }
}
