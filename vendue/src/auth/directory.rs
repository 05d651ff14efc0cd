//! The directory of `vendue auth`: the roster, the keys, and the files generated from them.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::json;
use shared::permissions::Role;

use super::{Roster, roster::Identity, server_config};
use crate::context::Usage;

const ROSTER: &str = "roster.json";
/// The file that servers include.
const SERVER_CONFIG: &str = "vendue-auth.conf";

/// A locked directory, which no other `vendue auth` changes meanwhile.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    roster: Roster,
    _lock: File,
}

/// An identity and its files.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The public key.
    pub(crate) nkey: String,
    /// The file with the seed.
    pub(crate) key: PathBuf,
    /// The context, for the `nats` tool and for `--context`.
    pub(crate) context: PathBuf,
}

impl Directory {
    /// Creates a directory, with the given roster.
    pub(crate) fn create(path: &Path, roster: Roster) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        let path = whole(path)?;
        let lock = lock(&path)?;
        if path.join(ROSTER).exists() {
            return Err(Usage::because(format_args!(
                "{}: there is a roster already; `vendue auth add-cell`, add-auctioneer, add-manager and add-user add to it",
                path.display()
            )));
        }
        for directory in ["keys", "contexts"] {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path.join(directory));
            made.with_context(|| path.join(directory).display().to_string())?;
        }
        let directory = Self {
            path,
            roster,
            _lock: lock,
        };
        directory.save()?;
        Ok(directory)
    }

    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = path.join(ROSTER);
        let missing = |why: &dyn std::fmt::Display| {
            Usage::because(format_args!(
                "{}: {why}; `vendue auth init` makes the directory, --dir names another one",
                file.display()
            ))
        };
        if !file.is_file() {
            return Err(missing(&"there is no such file"));
        }
        let path = whole(path)?;
        let lock = lock(&path)?;
        let text = fs::read_to_string(&file).map_err(|e| missing(&e))?;
        let roster = Roster::parse(&text);
        let roster = roster.map_err(|e| Usage::because(format_args!("{}: {e}", file.display())))?;
        Ok(Self {
            path,
            roster,
            _lock: lock,
        })
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Returns the file that servers include.
    pub(crate) fn server_config(&self) -> PathBuf {
        self.path.join(SERVER_CONFIG)
    }

    /// Returns the path of an identity's seed.
    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.path.join("keys").join(format!("{name}.nk"))
    }

    fn context(&self, name: &str) -> PathBuf {
        self.path.join("contexts").join(format!("{name}.json"))
    }

    /// Adds identities with new keys: all of them, or none.
    pub(crate) fn add(&mut self, role: Role, names: &[String]) -> anyhow::Result<Vec<Entry>> {
        self.add_for(role, names, None, &[])
    }

    /// Adds identities likewise: bridges with their slots, facades with their cells.
    pub(crate) fn add_for(
        &mut self,
        role: Role,
        names: &[String],
        slots: Option<usize>,
        cells: &[String],
    ) -> anyhow::Result<Vec<Entry>> {
        let wanted: Vec<(String, Role)> = names.iter().flat_map(|n| both(n, role)).collect();
        for (at, (name, _)) in wanted.iter().enumerate() {
            placement::check_name("NAME", name).map_err(Usage::invalid)?;
            if wanted[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Usage::because(format_args!("NAME {name:?}: given twice")));
            }
            if let Some(there) = self.roster.identities.get(name) {
                let role = there.role;
                return Err(Usage::because(format_args!(
                    "NAME {name:?}: there is a {role} of this name; names are part of subjects, so each is given once"
                )));
            }
        }
        self.refuse_shared_cells(&wanted, slots)?;
        self.refuse_two_facades(&wanted, cells)?;
        let mut added = Vec::new();
        for (name, role) in wanted {
            let pair = nkeys::KeyPair::new_user();
            let seed = pair.seed().context("making a key")?;
            let (key, context) = (self.key(&name), self.context(&name));
            write(&key, &format!("{seed}\n"), 0o600)?;
            let nkey = pair.public_key();
            let identity = Identity {
                role,
                nkey: nkey.clone(),
                slots,
                cells: cells.to_vec(),
            };
            self.roster.identities.insert(name.clone(), identity);
            added.push(Entry {
                name,
                role,
                nkey,
                key,
                context,
            });
        }
        self.save()?;
        Ok(added)
    }

    /// Rejects two facades that make DEAs of one cell, as each would stop what the other has started.
    fn refuse_two_facades(
        &self,
        wanted: &[(String, Role)],
        cells: &[String],
    ) -> anyhow::Result<()> {
        let known = self.roster.identities.iter();
        let known = known.map(|(name, identity)| (name, &identity.cells[..]));
        let new = wanted.iter().skip(1).map(|(name, _)| (name, cells));
        for (name, theirs) in known.chain(new) {
            if let Some(cell) = theirs.iter().find(|cell| cells.contains(cell)) {
                return Err(Usage::because(format_args!(
                    "CELL {cell:?}: the facade {name} has it; expected cells of which no other makes DEAs"
                )));
            }
        }
        Ok(())
    }

    /// Rejects two identities that could speak as one cell.
    fn refuse_shared_cells(
        &self,
        wanted: &[(String, Role)],
        slots: Option<usize>,
    ) -> anyhow::Result<()> {
        let slot_of = |name: &str, (bridge, slots): (&str, usize)| {
            let slot = name.strip_prefix(bridge)?.strip_prefix('-')?;
            let number: usize = slot.parse().ok()?;
            (number < slots && number.to_string() == slot).then(|| name.to_owned())
        };
        let known = self.roster.identities.iter();
        let bridges = known.filter_map(|(name, identity)| Some((name.as_str(), identity.slots?)));
        let new = wanted.iter();
        let new = new.filter_map(|(name, _)| Some((name.as_str(), slots?)));
        for bridge in bridges.chain(new) {
            let names = self.roster.identities.keys();
            let mut names = names.chain(wanted.iter().map(|(name, _)| name));
            if let Some(taken) = names.find_map(|name| slot_of(name, bridge)) {
                return Err(Usage::because(format_args!(
                    "NAME {taken:?}: this is also a slot of the bridge {}; expected another name",
                    bridge.0
                )));
            }
        }
        Ok(())
    }

    /// Removes identities with their keys: all of them, or none.
    pub(crate) fn remove(&mut self, names: &[String]) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for name in names {
            let Some(identity) = self.roster.identities.get(name) else {
                let known: Vec<&str> = self.roster.identities.keys().map(String::as_str).collect();
                let near = placement::nearest(name, &known);
                let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
                return Err(Usage::because(format_args!(
                    "NAME {name:?}: not in the roster{hint}"
                )));
            };
            if identity.role == Role::ManagerState {
                return Err(Usage::because(format_args!(
                    "NAME {name:?}: a manager's second identity; expected the name of the manager, with which it is removed"
                )));
            }
            all.extend(both(name, identity.role).map(|(name, _)| name));
        }
        for name in &all {
            self.roster.identities.remove(name);
        }
        // the configuration first: a leftover key grants no access
        self.save()?;
        for file in all.iter().flat_map(|n| [self.key(n), self.context(n)]) {
            match fs::remove_file(&file) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| file.display().to_string());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the roster and the files generated from it. Each file is replaced atomically, the roster first; the next
    /// change writes any file that is missing.
    fn save(&self) -> anyhow::Result<()> {
        let roster = serde_json::to_string_pretty(&self.roster)?;
        write(&self.path.join(ROSTER), &(roster + "\n"), 0o644)?;
        let config = server_config(&self.roster)?;
        write(&self.server_config(), &config, 0o644)?;
        for (name, identity) in &self.roster.identities {
            let context = json!({
                "description": format!("vendue {} {name}", identity.role),
                "url": self.roster.url,
                "nkey": self.key(name),
                "ca": self.roster.ca.clone().unwrap_or_default(),
                "tls_first": self.roster.tls_first,
                "inbox_prefix": format!("_INBOX.{name}"),
            });
            let text = serde_json::to_string_pretty(&context)?;
            write(&self.context(name), &(text + "\n"), 0o600)?;
        }
        Ok(())
    }
}

/// Returns the identities with this name: a manager has a second one, of the account with JetStream.
fn both(name: &str, role: Role) -> impl Iterator<Item = (String, Role)> {
    let state = (role == Role::Manager).then(|| (Role::state_of(name), Role::ManagerState));
    std::iter::once((name.to_owned(), role)).chain(state)
}

/// Returns the absolute path, as contexts are used in other directories.
fn whole(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| path.display().to_string())
}

fn lock(path: &Path) -> anyhow::Result<File> {
    let file = path.join(".lock");
    let open = File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|lock| lock.lock().map(|()| lock));
    open.with_context(|| file.display().to_string())
}

/// Replaces a file atomically; nobody else can read it before it has its mode.
fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = || {
        let parent = file.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(parent)?;
        new.write_all(text.as_bytes())?;
        new.as_file()
            .set_permissions(Permissions::from_mode(mode))?;
        new.as_file().sync_all()?;
        new.persist(file)?;
        std::io::Result::Ok(())
    };
    written().with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn mode(file: &Path) -> u32 {
        fs::metadata(file).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn identities_are_added_all_or_none_and_removed_with_their_keys() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("auth");
        let roster = Roster::new("vendue", "nats://127.0.0.1:4222");
        let mut directory = Directory::create(&path, roster.clone()).unwrap();
        let added = directory.add(Role::Cell, &names(&["c1", "c2"])).unwrap();
        assert_eq!(
            (mode(&added[0].key), mode(&added[0].context)),
            (0o600, 0o600)
        );
        assert_eq!(mode(&path.join("keys")), 0o700);
        let seed = fs::read_to_string(&added[0].key).unwrap();
        let config = fs::read_to_string(directory.server_config()).unwrap();
        assert!(config.contains(&added[0].nkey) && !config.contains(seed.trim()));

        for bad in [&["c3", "c1"][..], &["c3", "c3"], &["c3", "a b"]] {
            let error = directory.add(Role::User, &names(bad)).unwrap_err();
            assert!(error.to_string().contains("NAME"), "{error}");
            assert!(!directory.key("c3").exists());
        }
        let error = directory.remove(&names(&["c1", "c9"])).unwrap_err();
        assert!(error.to_string().contains("c9"), "{error}");
        drop(directory);

        let mut directory = Directory::open(&path).unwrap();
        directory.remove(&names(&["c1"])).unwrap();
        assert!(!added[0].key.exists() && !added[0].context.exists());
        let left = |directory: &Directory| {
            let names = directory.roster().identities.keys();
            names.cloned().collect::<Vec<String>>()
        };
        assert_eq!(left(&directory), ["c2"]);
        // a manager has two identities, which are added and removed together
        let error = directory.add(Role::Manager, &names(&["m", "m-state"]));
        assert!(error.unwrap_err().to_string().contains("twice"));
        let added = directory.add(Role::Manager, &names(&["m"])).unwrap();
        let roles: Vec<Role> = added.iter().map(|entry| entry.role).collect();
        assert_eq!(roles, [Role::Manager, Role::ManagerState]);
        assert_eq!(left(&directory), ["c2", "m", "m-state"]);
        let error = directory.add(Role::Cell, &names(&["m-state"])).unwrap_err();
        assert!(error.to_string().contains("manager-state"), "{error}");
        let error = directory.remove(&names(&["m-state"])).unwrap_err();
        assert!(error.to_string().contains("m-state"), "{error}");
        directory.remove(&names(&["m"])).unwrap();
        assert_eq!(left(&directory), ["c2"]);
        assert!(!added[1].key.exists() && !added[1].context.exists());
        drop(directory);
        let error = Directory::create(&path, roster).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
        let error = Directory::open(files.path()).unwrap_err();
        assert!(error.to_string().contains("vendue auth init"), "{error}");
    }
}
