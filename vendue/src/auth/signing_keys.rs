//! The same permissions for a server with an operator: scoped signing keys, whose templates refer to the user by a
//! placeholder.

use serde_json::{Value, json};
use shared::{
    Subjects,
    permissions::{Permissions, Role},
};

/// Stands for the name of the user's token.
const NAME: &str = "{{name()}}";
/// Stands for the cells of a bridge or a facade: one tag `cell:NAME` of the user's token for each.
const CELL: &str = "{{tag(cell)}}";

/// Returns the scope of each role in the form of the account's token; only `key` must be filled in, with the public
/// signing key of that role.
pub(crate) fn signing_keys(subjects: &Subjects) -> Value {
    let scopes = Role::ALL.map(|role| {
        json!({
            "kind": "user_scope",
            "key": "",
            "role": role.name(),
            "description": role.purpose(),
            "template": template(&role.permissions_for(subjects, NAME, &[CELL.to_owned()])),
        })
    });
    json!(scopes)
}

fn template(permissions: &Permissions) -> Value {
    // a server drops every subject with a queue group from a list that contains a placeholder
    let subscribe: Vec<&str> = permissions
        .subscribe
        .iter()
        .map(|subscribe| subscribe.subject.as_str())
        .collect();
    let publish = if permissions.publish.is_empty() {
        json!({"deny": [">"]})
    } else {
        json!({"allow": permissions.publish})
    };
    json!({
        "pub": publish,
        "sub": {"allow": subscribe},
        // unlimited
        "subs": -1,
        "data": -1,
        "payload": -1,
    })
}
