//! Named resources of a request, as options specify them.

use std::collections::BTreeMap;

use crate::context::Usage;

/// Parses the amounts of `--extra NAME=N`; an error if one is not a number.
pub(super) fn amounts(given: &[(String, String)]) -> anyhow::Result<BTreeMap<String, i64>> {
    let amount = |(name, amount): &(String, String)| match amount.parse() {
        Ok(number) => Ok((name.clone(), number)),
        Err(_) => Err(Usage::because(format_args!(
            "--extra {name}={amount}: expected a number"
        ))),
    };
    given.iter().map(amount).collect()
}
