//! Droplets: how a cell runs what DEAs run. The archive is fetched, checked and unpacked as every source is, and a script
//! starts it.

use std::{io, path::Path};

use advertiser::dea::{DropletInstance, DropletRun};
use placement::{Run, RunSource};
use shared::wire::Work;

use super::ports::Port;

/// What is run where the operator names nothing else.
const DEFAULT_SCRIPT: &str = include_str!("droplet.sh");

/// What a droplet adds to an instance.
pub(super) struct DropletOrders {
    pub(super) command: Vec<String>,
    /// Later ones replace earlier ones.
    pub(super) variables: Vec<(String, String)>,
    pub(super) source: RunSource,
}

/// The longest argument, and the longest variable with its name, that Linux passes to a program, bytes without the NUL
/// at the end.
const MAX_TEXT: usize = (128 << 10) - 1;

/// The script that starts droplets: that of a file, else our own.
pub(super) fn script(file: Option<&Path>) -> io::Result<String> {
    let script = file.map_or_else(|| Ok(DEFAULT_SCRIPT.to_owned()), std::fs::read_to_string)?;
    if script.len() > MAX_TEXT || script.contains('\0') {
        let bytes = script.len();
        let why = format!("{bytes} bytes; expected at most {MAX_TEXT}, without NUL");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(script)
}

/// What is to be done for the droplet of an instance, if it is one.
pub(super) fn orders(
    work: &Work,
    run: &Run,
    port: Option<&Port>,
    script: &str,
) -> Result<Option<DropletOrders>, String> {
    let Some(droplet) = &run.droplet else {
        return Ok(None);
    };
    let droplet = DropletRun::of(droplet).map_err(|invalid| invalid.to_string())?;
    let is_sha1 = |text: &str| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if droplet.sha1.as_deref().is_some_and(|sha1| !is_sha1(sha1)) {
        return Err("run.droplet.sha1: no SHA-1; expected 40 hexadecimal digits".to_owned());
    }
    let instance = DropletInstance {
        app: &work.app,
        index: work.index,
        memory_mb: work.memory_mb,
        disk_mb: work.disk_mb,
    };
    let id = work.instance.uuid().simple().to_string();
    let mut variables = droplet.variables(instance, &id, port.map_or(0, Port::number));
    let command = droplet.start_command.0.clone().unwrap_or_default();
    variables.push(("DROPLET_COMMAND".to_owned(), command));
    let too_long = |(name, value): &&(String, String)| name.len() + 1 + value.len() > MAX_TEXT;
    if let Some((name, value)) = variables.iter().find(too_long) {
        let bytes = name.len() + 1 + value.len();
        let name = placement::cut(name);
        return Err(format!(
            "run.droplet: {bytes} bytes in the variable {name}; expected at most {MAX_TEXT}"
        ));
    }
    Ok(Some(DropletOrders {
        command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        variables,
        // a SHA-1 is told from a SHA-256 by its length; without one nothing is compared
        source: RunSource {
            url: droplet.uri.0.clone(),
            sha256: droplet.sha1.clone().unwrap_or_default(),
        },
    }))
}
