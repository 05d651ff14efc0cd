//! The environment of an instance.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use placement::Resources;
use shared::wire::Work;

use super::ports::Port;

/// The PATH of instances if the rep itself has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns an instance's environment. It inherits nothing from the rep but `PATH`, with the directory of the rep's own
/// program in front, so that instances can run `vendue` where it is not installed.
pub(super) fn environment(
    cell: &str,
    zone: &str,
    work: &Work,
    port: Option<&Port>,
    memory_mb: u64,
    directory: &Path,
    devices: &DeviceVariables,
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
    environment.extend(devices.of_work(work));
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

/// The variables that tell instances their devices.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceVariables {
    /// The cell's sets.
    sets: Vec<String>,
    /// More variables, in which `{gpu}` stands for the devices of the set `gpu`.
    templates: BTreeMap<String, String>,
}

impl DeviceVariables {
    pub(super) fn of(total: &Resources, templates: &BTreeMap<String, String>) -> Self {
        Self {
            sets: total.devices.keys().cloned().collect(),
            templates: templates.clone(),
        }
    }

    /// Returns `GPU_DEVICES=0,3` for each set, and the templates. A set of which the instance has no devices gives an
    /// empty list, so that the instance sees none.
    fn of_work(&self, work: &Work) -> impl Iterator<Item = (OsString, OsString)> {
        let lists: Vec<(String, String)> = self
            .sets
            .iter()
            .map(|set| {
                let share = work.devices.get(set);
                let numbers = share.map(|share| share.numbers.iter().map(u32::to_string));
                let numbers: Vec<String> = numbers.into_iter().flatten().collect();
                (set.clone(), numbers.join(","))
            })
            .collect();
        let filled = |(name, template): (&String, &String)| {
            let fill = |text: String, (set, list): &(String, String)| {
                text.replace(&format!("{{{set}}}"), list)
            };
            let value = lists.iter().fold(template.clone(), fill);
            (OsString::from(name), value.into())
        };
        let templates: Vec<(OsString, OsString)> = self.templates.iter().map(filled).collect();
        let own = lists.into_iter().map(|(set, list)| {
            let name = format!("{}_DEVICES", set.to_ascii_uppercase());
            (name.into(), list.into())
        });
        own.chain(templates)
    }
}

/// Returns the directory of `program`, followed by those of `path`.
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

    use placement::{DeviceSet, DeviceShare, Run};
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

    /// Returns the environment of an instance on cell `a` in zone `z1`.
    fn of(work: &Work, devices: &DeviceVariables) -> Result<BTreeMap<OsString, OsString>, String> {
        environment("a", "z1", work, None, 64, Path::new("/d"), devices)
    }

    #[test]
    fn the_request_overrides_the_environment() {
        let work = work(&[("ZONE", "mine"), ("X", "1")]);
        let found = of(&work, &DeviceVariables::default()).unwrap();
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
    fn an_instance_is_told_its_devices_and_that_it_has_none() {
        let mut total = Resources::new(1, 1, 1);
        for set in ["gpu", "fpga"] {
            total.devices.insert(set.into(), DeviceSet::new(8, 1000));
        }
        let templates = [
            ("CUDA_VISIBLE_DEVICES".to_owned(), "{gpu}".to_owned()),
            ("ALL".to_owned(), "g={gpu} f={fpga} {x}".to_owned()),
        ];
        let devices = DeviceVariables::of(&total, &templates.into());
        let mut work = work(&[("ALL", "mine")]);
        let value = |work: &Work, name: &str| {
            let found = of(work, &devices).unwrap();
            found[OsStr::new(name)].to_str().unwrap().to_owned()
        };
        for name in ["GPU_DEVICES", "FPGA_DEVICES", "CUDA_VISIBLE_DEVICES"] {
            assert_eq!(value(&work, name), "", "{name}");
        }
        let share = DeviceShare {
            amount: 220,
            numbers: vec![0, 3],
        };
        work.devices.insert("gpu".into(), share);
        assert_eq!(value(&work, "GPU_DEVICES"), "0,3");
        assert_eq!(value(&work, "CUDA_VISIBLE_DEVICES"), "0,3");
        assert_eq!(value(&work, "FPGA_DEVICES"), "");
        assert_eq!(value(&work, "ALL"), "mine", "the request overrides it");
        work.run = None;
        assert_eq!(value(&work, "ALL"), "g=0,3 f= {x}");
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
            assert!(of(&work, &DeviceVariables::default()).is_err());
        }
    }
}
