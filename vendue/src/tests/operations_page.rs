//! Checks that docs/OPERATIONS.md lists every setting of the roles.

use clap::{Arg, CommandFactory};

use crate::cli::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATIONS.md");

/// Returns a flag's row: how it is written, its description, its variable and its default.
fn row(arg: &Arg) -> Option<String> {
    let flag = arg.get_long()?;
    let value = match arg.get_value_names() {
        Some(names) if arg.get_action().takes_values() => format!(" {}", names[0]),
        _ => String::new(),
    };
    let help = arg.get_help()?.to_string();
    let (what, said) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let by_library = arg.get_default_values().iter().map(|v| v.to_string_lossy());
    let default = match said.strip_suffix(']') {
        Some(said) => said.to_owned(),
        None => by_library.collect::<Vec<_>>().join(", "),
    };
    let variable = arg.get_env().map_or(String::new(), |variable| {
        format!("`{}`", variable.to_string_lossy())
    });
    let row = format!("| `--{flag}{value}` | {what} | {default} | {variable} |");
    // a bar would begin a column
    Some(row.replace("NAME|FILE", "NAME or FILE"))
}

/// Returns the table of a role, without the options common to all commands.
fn table(role: &str) -> String {
    let command = Cli::command();
    let mut words = role.split(' ');
    let command = words.try_fold(&command, |command, word| command.find_subcommand(word));
    let command = command.unwrap();
    let rows = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let rows: Vec<String> = rows.filter_map(row).collect();
    format!(
        "| flag | | default | variable |\n|---|---|---|---|\n{}\n",
        rows.join("\n")
    )
}

#[test]
fn every_setting_between_an_estate_and_a_cluster_is_on_its_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/LEGACY.md");
    let page = std::fs::read_to_string(page).unwrap();
    for role in ["advertiser dea-in", "advertiser dea-out"] {
        let text = table(role);
        assert!(page.contains(&text), "docs/LEGACY.md must hold:\n\n{text}");
    }
}

#[test]
fn every_setting_of_the_roles_is_on_the_page() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let section = |role| format!("### `vendue {role}`\n\n{}\n", table(role));
    let text = ["manager", "auctioneer", "rep"].map(section).concat();
    assert!(
        page.contains(&text),
        "docs/OPERATIONS.md must hold:\n\n{text}"
    );
}
