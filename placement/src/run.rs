//! What a cell executes for an instance.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    droplet::{Droplet, Staging},
    invalid::{Invalid, check_count},
    secret::{MAX_SECRETS, Secret},
    source::RunSource,
};

/// The longest argument, or variable including its name, that Linux passes to a program, in bytes with the NUL at the
/// end.
const MAX_TEXT: usize = 128 << 10;
/// The largest size of a command and its environment, in bytes: half of what Linux passes by default, because the cell
/// adds variables of its own.
const MAX_RUN: usize = 1 << 20;
/// The overhead of each text: a NUL and its address.
const TEXT_OVERHEAD: usize = 9;

const NUL: &str = "a text with NUL";
const NO_NUL: &str = "one without";

/// The form in which an instance is told what it runs. Not every cell runs every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A command, or nothing.
    Command,
    /// A droplet.
    Droplet,
    /// The staging of an app, which makes a droplet of it.
    Staging,
}

/// What a cell executes for an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The program and its arguments; at least the program, unless there is a droplet or staging.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Variables added to the environment that the cell sets, overriding it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether it needs a port, which is passed as `PORT`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub port: bool,
    /// Secrets: files of the cell that the instance gets; the cell reads them.
    #[serde(
        default,
        deserialize_with = "crate::object::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub secrets: Vec<Secret>,
    /// The archive that it is made from; the cell fetches and unpacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RunSource>,
    /// A droplet instead of a command; only for cells that run droplets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub droplet: Option<Arc<Droplet>>,
    /// The staging of an app instead of a command; only for tasks on cells that stage apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Arc<Staging>>,
}

impl Run {
    /// Returns whether an instance gets a port; a droplet always does.
    pub fn needs_port(&self) -> bool {
        self.port || self.droplet.is_some()
    }

    /// Returns its form.
    pub fn form(&self) -> Form {
        if self.staging.is_some() {
            Form::Staging
        } else if self.droplet.is_some() {
            Form::Droplet
        } else {
            Form::Command
        }
    }

    /// Rejects a droplet or staging that is combined with something that DEAs do not support.
    fn check_form(&self, form: &str) -> Result<(), Invalid> {
        for (field, given) in [
            ("run.command", !self.command.is_empty()),
            ("run.secrets", !self.secrets.is_empty()),
            ("run.source", self.source.is_some()),
        ] {
            if given {
                let expected = format!("none beside {form}, which has its own");
                return Err(Invalid::new(field, "one", expected));
            }
        }
        Ok(())
    }

    fn check_staging(&self, staging: &Staging) -> Result<(), Invalid> {
        let form = "run.staging";
        self.check_form(form)?;
        for (field, given) in [
            ("run.droplet", self.droplet.is_some()),
            ("run.port", self.port),
        ] {
            if given {
                let expected = format!("none beside {form}");
                return Err(Invalid::new(field, "one", expected));
            }
        }
        staging.check(form)
    }

    /// Rejects what cannot be executed: no program, a NUL in any text, names of environment variables that are empty or
    /// contain a `=`, and more than Linux passes to a program. The errors give the position but never the value: they
    /// are published as events, and values may be secrets.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(staging) = &self.staging {
            self.check_staging(staging)?;
        } else if let Some(droplet) = &self.droplet {
            self.check_form("run.droplet")?;
            droplet.check("run.droplet")?;
        } else if self.command.first().is_none_or(String::is_empty) {
            let expected = "the program and its arguments";
            return Err(Invalid::new("run.command", "[]", expected));
        }
        for (n, word) in self.command.iter().enumerate() {
            if word.contains('\0') {
                return Err(Invalid::new(format!("run.command[{n}]"), NUL, NO_NUL));
            }
            check_bytes(|| format!("run.command[{n}]"), word.len(), MAX_TEXT - 1)?;
        }
        for (name, value) in &self.env {
            let expected = "names of at least one character, without = and NUL";
            for (fault, what) in [
                (name.is_empty(), "an empty name"),
                (name.contains('='), "a name with ="),
                (name.contains('\0'), "a name with NUL"),
            ] {
                if fault {
                    return Err(Invalid::new("run.env", what, expected));
                }
            }
            if value.contains('\0') {
                return Err(Invalid::new(format!("run.env.{name}"), NUL, NO_NUL));
            }
            // passed as one text
            check_bytes(
                || format!("run.env.{name}"),
                name.len() + 1 + value.len(),
                MAX_TEXT - 1,
            )?;
        }
        check_count("run.secrets", self.secrets.len(), MAX_SECRETS)?;
        for (n, secret) in self.secrets.iter().enumerate() {
            secret.check(&format!("run.secrets[{n}]"))?;
        }
        if let Some(source) = &self.source {
            source.check("run.source")?;
        }
        let words = self.command.iter().map(String::len);
        let variables = self
            .env
            .iter()
            .map(|(name, value)| name.len() + 1 + value.len());
        let all = words.chain(variables).map(|text| text + TEXT_OVERHEAD);
        check_bytes(|| "run".into(), all.sum(), MAX_RUN)
    }
}

fn check_bytes(field: impl FnOnce() -> String, bytes: usize, most: usize) -> Result<(), Invalid> {
    if bytes <= most {
        return Ok(());
    }
    Err(Invalid::new(
        field(),
        format!("a text of {bytes} bytes"),
        format!("at most {most}, as Linux passes no more to a program"),
    ))
}
