//! Forms of work for which the cell chooses the command: droplets and the staging of apps. A script of the operator
//! does the work.

use std::{io, path::Path};

use placement::Run;
use shared::wire::Work;

use super::{ExecutorError, droplets, form_orders::FormOrders, ports::Port, staging};
use crate::config::ProcessConfig;

/// The longest argument, or variable including its name, that Linux passes to a program, in bytes without the NUL at
/// the end.
const MAX_TEXT: usize = (128 << 10) - 1;

/// The scripts of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    /// Starts droplets.
    pub(super) droplet: String,
    /// Stages apps; if none, nothing is staged.
    pub(super) staging: Option<String>,
}

impl Scripts {
    /// Reads the configured files.
    pub(super) fn read(process: &ProcessConfig) -> Result<Self, ExecutorError> {
        let droplet = read("droplet-script", process.droplet_script.as_deref())?;
        Ok(Self {
            droplet: droplet.unwrap_or_else(|| droplets::DEFAULT_SCRIPT.to_owned()),
            staging: read("staging-script", process.staging_script.as_deref())?,
        })
    }
}

fn read(setting: &'static str, file: Option<&Path>) -> Result<Option<String>, ExecutorError> {
    let Some(file) = file else {
        return Ok(None);
    };
    let script = std::fs::read_to_string(file).and_then(|script| {
        if script.len() <= MAX_TEXT && !script.contains('\0') {
            return Ok(script);
        }
        let bytes = script.len();
        let why = format!("{bytes} bytes; expected at most {MAX_TEXT}, without NUL");
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    });
    script.map(Some).map_err(|source| ExecutorError::Script {
        setting,
        file: file.to_owned(),
        source,
    })
}

/// Returns the orders for an instance in such a form; none for one with a command.
pub(super) fn orders(
    work: &Work,
    run: &Run,
    (port, directory): (Option<&Port>, &Path),
    scripts: &Scripts,
) -> Result<Option<FormOrders>, String> {
    let (field, orders) = if let Some(staging) = &run.staging {
        let orders = staging::orders(staging, directory, scripts.staging.as_deref())?;
        ("run.staging", orders)
    } else if let Some(droplet) = &run.droplet {
        let orders = droplets::orders(work, droplet, port, &scripts.droplet)?;
        ("run.droplet", orders)
    } else {
        return Ok(None);
    };
    let too_long = |(name, value): &&(String, String)| name.len() + 1 + value.len() > MAX_TEXT;
    if let Some((name, value)) = orders.variables.iter().find(too_long) {
        let bytes = name.len() + 1 + value.len();
        let name = placement::cut(name);
        return Err(format!(
            "{field}: {bytes} bytes in the variable {name}; expected at most {MAX_TEXT}"
        ));
    }
    Ok(Some(orders))
}
