//! The staging of an app: a script of the operator makes a droplet of it. The script's input is in a file that only the
//! instance can read. In the environment, it would reach every program that the script starts. The script describes the
//! droplet in another file.

use std::path::Path;

use advertiser::dea::StagingRun;
use placement::Staging;

use super::form_orders::{FormOrders, shell};
use crate::supervisor::RESULT_FILE;

/// The file with everything that is known of the task.
const REQUEST_FILE: &str = "staging.json";

/// Returns the orders for staging an app in the directory of its instance.
pub(super) fn orders(
    staging: &Staging,
    directory: &Path,
    script: Option<&str>,
) -> Result<FormOrders, String> {
    let Some(script) = script else {
        let why = "run.staging: this cell has no script for it; expected staging-script to be set";
        return Err(why.to_owned());
    };
    let task = StagingRun::of(staging).map_err(|invalid| invalid.to_string())?;
    let variable = |name: &str, file: &str| {
        let path = directory.join(file).display().to_string();
        (name.to_owned(), path)
    };
    let request = serde_json::to_vec(&task).map_err(|error| error.to_string())?;
    Ok(FormOrders {
        command: shell(script),
        variables: vec![
            variable("STAGING_REQUEST", REQUEST_FILE),
            variable("STAGING_RESULT", RESULT_FILE),
        ],
        source: None,
        file: Some((REQUEST_FILE, request)),
        has_result: true,
    })
}
