//! Checks whether a range of users is free for instances on this machine.

use std::fs;

use super::ExecutorError;

/// Files that assign numbers to users and groups: the index of the field with the first number, and of the one with the
/// count.
const ACCOUNTS: [(&str, usize, Option<usize>); 4] = [
    ("/etc/passwd", 2, None),
    ("/etc/group", 2, None),
    ("/etc/subuid", 1, Some(2)),
    ("/etc/subgid", 1, Some(2)),
];

/// Rejects a range of users and groups that this user namespace does not have, or that somebody else uses.
pub(super) fn check_range(first: u32, last: u32) -> Result<(), ExecutorError> {
    for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
        // without this file the kernel has no user namespaces
        let Ok(text) = fs::read_to_string(map) else {
            continue;
        };
        if !is_mapped(&text, first, last) {
            return Err(ExecutorError::UsersNotMapped {
                users: (first, last),
                map: text.split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
    }
    for (file, number, count) in ACCOUNTS {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(line) = overlapping(&text, number, count, first, last) {
            return Err(ExecutorError::UsersInUse {
                users: (first, last),
                by: format!("{file} has {line:?}"),
            });
        }
    }
    Ok(())
}

/// Returns whether a map contains the range. Format: user_namespaces(7): first number inside, first outside, count.
fn is_mapped(map: &str, first: u32, last: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|n| n.parse::<u64>().ok());
        let (Some(inside), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        inside <= u64::from(first) && u64::from(last) < inside + count
    })
}

fn overlapping(
    text: &str,
    number: usize,
    count: Option<usize>,
    first: u32,
    last: u32,
) -> Option<String> {
    let overlaps = |line: &&str| {
        let field = |nth: usize| line.split(':').nth(nth)?.parse::<u64>().ok();
        let Some(begins) = field(number) else {
            return false;
        };
        let many = count.map_or(Some(1), field).unwrap_or(1);
        begins <= u64::from(last) && u64::from(first) < begins + many
    };
    let line = text.lines().find(overlaps)?;
    Some(line.chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_exist_in_the_user_namespace_as_a_whole() {
        let whole = "         0          0 4294967295\n";
        let small = "0 100000 65536\n";
        assert!(is_mapped(whole, 70_000, 79_999));
        assert!(!is_mapped(small, 70_000, 79_999));
        assert!(is_mapped(small, 65_000, 65_535));
        assert!(!is_mapped(small, 65_000, 65_536));
        assert!(!is_mapped("", 1, 2));
    }

    #[test]
    fn a_range_that_someone_has_is_found() {
        let passwd = "root:x:0:0:root::/bin/sh\nanna:x:70005:100:::/bin/sh\n";
        let find = |first, last| overlapping(passwd, 2, None, first, last);
        assert!(find(70_000, 79_999).unwrap().starts_with("anna:"));
        assert_eq!(find(70_006, 79_999), None);
        let subuid = "anna:100000:65536\nbert:165536:65536\n";
        let find = |first, last| overlapping(subuid, 1, Some(2), first, last);
        assert_eq!(find(70_000, 99_999), None);
        assert!(find(70_000, 100_000).unwrap().starts_with("anna:"));
        assert!(find(231_071, 300_000).unwrap().starts_with("bert:"));
        assert_eq!(find(231_072, 300_000), None);
    }
}
