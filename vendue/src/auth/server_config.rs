//! The part of a server's configuration that is included: an account with a user for each identity.

use std::fmt::Write;

use shared::{Subjects, permissions::Permissions};

use super::Roster;

/// The account of the cluster. It has no JetStream, so that no reply subject or consumer's delivery subject leads to
/// stored state, or from there to a cell.
const ACCOUNT: &str = "VENDUE";
/// The account of the roles that store state.
const STATE_ACCOUNT: &str = "VENDUE_STATE";

/// Returns the text of the file to include.
pub(crate) fn server_config(roster: &Roster) -> Result<String, placement::Invalid> {
    let subjects = roster.subjects()?;
    let mut text = format!(
        "# Made by `vendue auth`, which overwrites it. Include it in the configuration of every server,\n\
         # and reload the servers when it has changed. Who is not listed cannot connect; what is not\n\
         # listed is refused.\n\
         accounts {{\n  {ACCOUNT} {{\n    users: [\n"
    );
    text += &users(roster, &subjects, false);
    let _ = write!(
        text,
        "    ]\n  }}\n  # for what managers store in JetStream: out of reach of everybody above\n  \
         {STATE_ACCOUNT} {{\n    jetstream: enabled\n    users: [\n"
    );
    text += &users(roster, &subjects, true);
    text += "    ]\n  }\n}\n";
    Ok(text)
}

/// Returns the users of one of the two accounts.
fn users(roster: &Roster, subjects: &Subjects, has_jetstream: bool) -> String {
    let mut text = String::new();
    for (name, identity) in &roster.identities {
        let (role, nkey) = (identity.role, &identity.nkey);
        if role.has_jetstream() != has_jetstream {
            continue;
        }
        let cells = identity.cells_of(name);
        let permissions = role.permissions_for(subjects, name, &cells);
        let _ = writeln!(text, "      # {role} {name}");
        let _ = writeln!(text, "      {{ nkey: {nkey}, permissions: {{");
        text += &lists(&permissions);
        text += "      } }\n";
    }
    text
}

fn lists(permissions: &Permissions) -> String {
    // an empty list would allow everything
    let publish = match permissions.publish.as_slice() {
        [] => "{ deny: \">\" }".to_owned(),
        subjects => list(subjects),
    };
    let allowed = list(&permissions.subscribe);
    let subscribe = match permissions.not_join.as_slice() {
        [] => allowed,
        refused => format!("{{ allow: {allowed}, deny: {} }}", list(refused)),
    };
    format!("        publish: {publish}\n        subscribe: {subscribe}\n")
}

fn list(items: &[impl ToString]) -> String {
    let mut text = String::from("[\n");
    for item in items {
        let _ = writeln!(text, "          \"{}\"", item.to_string());
    }
    text + "        ]"
}
