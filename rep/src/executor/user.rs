//! The user that instances run as.

use std::fs;

use super::ExecutorError;

/// The user and group that instances run as; none = the rep's own. A rep that runs as root uses
/// `nobody` by default; only root can choose.
pub(crate) fn choose(run_as: Option<&str>) -> Result<Option<(u32, u32)>, ExecutorError> {
    let own = rustix::process::geteuid().as_raw();
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    choose_from(run_as, own, &accounts)
}

fn choose_from(
    run_as: Option<&str>,
    own: u32,
    accounts: &str,
) -> Result<Option<(u32, u32)>, ExecutorError> {
    let name = match run_as {
        None if own == 0 => "nobody",
        None => return Ok(None),
        Some(name) => name,
    };
    let (uid, gid) = match find(accounts, name) {
        Some(found) => found,
        None if name == "nobody" => (65_534, 65_534),
        None => return Err(ExecutorError::UnknownUser { user: name.into() }),
    };
    match own {
        0 => Ok(Some((uid, gid))),
        _ if uid == own => Ok(None),
        _ => Err(ExecutorError::NotRoot { user: name.into() }),
    }
}

fn find(accounts: &str, name: &str) -> Option<(u32, u32)> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let mut numbers = fields.skip(1);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_runs_instances_as_another_user() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:100::/home/anna:/bin/sh\n";
        for (run_as, own, expected) in [
            (None, 0, Ok(Some((65_534, 65_534)))),
            (Some("anna"), 0, Ok(Some((1_000, 100)))),
            (Some("root"), 0, Ok(Some((0, 0)))),
            (None, 1_000, Ok(None)),
            (Some("anna"), 1_000, Ok(None)),
            (Some("root"), 1_000, Err(())),
            (Some("bert"), 0, Err(())),
        ] {
            let chosen = choose_from(run_as, own, accounts);
            assert_eq!(chosen.map_err(|_| ()), expected, "{run_as:?} as {own}");
        }
    }
}
