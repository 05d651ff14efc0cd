//! Droplets: runs what DEAs run. The archive is fetched, checked and unpacked like any source, and a script starts it.

use advertiser::dea::{DropletInstance, DropletRun};
use placement::{Droplet, RunSource};
use shared::wire::Work;

use super::{
    form_orders::{FormOrders, shell},
    ports::Port,
};

/// The script if the operator configures none.
pub(super) const DEFAULT_SCRIPT: &str = include_str!("droplet.sh");

/// Returns the orders for an instance of a droplet.
pub(super) fn orders(
    work: &Work,
    droplet: &Droplet,
    port: Option<&Port>,
    script: &str,
) -> Result<FormOrders, String> {
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
    Ok(FormOrders {
        command: shell(script),
        variables,
        // a SHA-1 is told from a SHA-256 by its length; without a checksum nothing is compared
        source: Some(RunSource {
            url: droplet.uri.0.clone(),
            sha256: droplet.sha1.clone().unwrap_or_default(),
        }),
        file: None,
        has_result: false,
    })
}
