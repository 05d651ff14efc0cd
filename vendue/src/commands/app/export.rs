//! `app export`: writes apps with the values of their environment to a file that only its owner can read.

use std::{fs::Permissions, io::Write, os::unix::fs::PermissionsExt, path::Path};

use anyhow::Context;
use serde_json::json;
use shared::wire::{AppExport, AppLook, code};

use super::{check_app, list};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Failure, Format, Global},
    output::{self, counted, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file holds secrets: the values of the environment. It can be read by its owner only.\n\n\
                  Example: vendue app export --file apps.json"
)]
pub(crate) struct ExportArgs {
    /// The apps [default: all]
    #[arg(value_name = "APP")]
    apps: Vec<String>,
    /// Where to write them (mode 0600; a file that is there is replaced); - is standard output
    #[arg(long, value_name = "FILE")]
    file: String,
}

/// Exports the apps.
pub(super) async fn export(global: &Global, args: &ExportArgs) -> anyhow::Result<Exit> {
    args.apps.iter().try_for_each(|app| check_app(app))?;
    let cluster = Cluster::connect(global).await?;
    let apps = if args.apps.is_empty() {
        everything(&cluster).await?
    } else {
        let mut apps = Vec::new();
        for app in &args.apps {
            apps.push(one(&cluster, app).await?);
        }
        apps
    };
    let document = json!({"v": shared::VERSION, "apps": apps});
    if args.file == "-" {
        output::json(&document)?;
        return Ok(Exit::Ok);
    }
    let text = serde_json::to_string_pretty(&document)? + "\n";
    write(Path::new(&args.file), &text).with_context(|| args.file.clone())?;
    let names: Vec<_> = apps.iter().map(|app| &app.definition["app"]).collect();
    match cluster.format {
        Format::Json => {
            output::json(&json!({"v": shared::VERSION, "file": args.file, "apps": names}))?;
        }
        Format::Table => note(format_args!(
            "{} written to {}, with the values of their environment",
            counted(apps.len(), "app"),
            args.file
        )),
    }
    Ok(Exit::Ok)
}

/// Returns every app that is not deleted, not even meanwhile.
async fn everything(cluster: &Cluster) -> anyhow::Result<Vec<AppExport>> {
    let mut apps = Vec::new();
    for status in list::all(cluster).await?.apps {
        if status.deleted {
            continue;
        }
        match one(cluster, &status.app).await {
            Err(error) if is_gone(&error) => {}
            app => apps.push(app?),
        }
    }
    Ok(apps)
}

fn is_gone(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| failure.code == code::NOT_FOUND)
}

async fn one(cluster: &Cluster, app: &str) -> anyhow::Result<AppExport> {
    let question = AppLook {
        v: shared::VERSION,
        version: None,
    };
    let subject = cluster.subjects.app("export", app);
    let asked = cluster.ask(Peer::Manager, subject, &question, TIMEOUT);
    asked.await
}

/// Writes the file atomically; others can never read it.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut new = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))?;
    new.as_file()
        .set_permissions(Permissions::from_mode(0o600))?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_file_is_its_owners_also_where_another_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("apps.json");
        std::fs::write(&file, "public").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        write(&file, "secret").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(write(&dir.path().join("no/such"), "").is_err());
    }
}
