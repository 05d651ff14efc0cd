//! Orders for instances whose command the cell chooses.

use placement::RunSource;

/// What its form adds to the orders of an instance.
pub(super) struct FormOrders {
    pub(super) command: Vec<String>,
    /// Later entries replace earlier ones.
    pub(super) variables: Vec<(String, String)>,
    pub(super) source: Option<RunSource>,
    /// The name and content of a file in its directory.
    pub(super) file: Option<(&'static str, Vec<u8>)>,
    /// Whether its end is reported with the content of its result file.
    pub(super) has_result: bool,
}

/// Returns the command that runs a script.
pub(super) fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).into()
}
