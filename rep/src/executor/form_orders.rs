//! What is to be done for an instance whose command the cell chooses.

use placement::RunSource;

/// What its form adds to an instance.
pub(super) struct FormOrders {
    pub(super) command: Vec<String>,
    /// Later ones replace earlier ones.
    pub(super) variables: Vec<(String, String)>,
    pub(super) source: Option<RunSource>,
    /// The name and content of a file in its directory.
    pub(super) file: Option<(&'static str, Vec<u8>)>,
    /// Whether what is in its result file is told with its end.
    pub(super) has_result: bool,
}

/// How a script is run.
pub(super) fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).into()
}
