//! The table `trace` of a scenario: cells and work from two CSV files.

use std::fmt::Write;

use placement::{Kind, ResourceName};
use scenarios::ScenarioError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Contender, read};
use crate::trace::{self, Columns, GPU, Resample, Source, Trace};

/// Reads a file of a trace, by its name in the scenario.
pub type ReadFile<'f> = dyn Fn(&str) -> std::io::Result<Vec<u8>> + 'f;

/// The table: the files to read, and how.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceTable {
    /// The file of nodes.
    pub nodes: String,
    /// The file of pods.
    pub pods: String,
    /// Columns with other names: `field=column`, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
    /// If set, pods are drawn until they ask for this many per cent of what the nodes have, and arrive one by one.
    /// Otherwise they come and go at their times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<f64>,
    /// The resource in which that is counted; default `gpu`, or `memory` if nodes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The SHA-256 of the file of nodes; another file is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_sha256: Option<String>,
    /// The same for the file of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_sha256: Option<String>,
}

impl TraceTable {
    /// Reads the files.
    pub(super) fn read(
        &self,
        files: &ReadFile<'_>,
    ) -> Result<(Trace, Option<Resample>), ScenarioError> {
        let columns = self.columns.as_deref().unwrap_or_default();
        let columns: Columns = columns.parse().map_err(|e| field("columns", &e))?;
        let (nodes, sum) = open(files, "nodes", &self.nodes)?;
        check_sum("nodes_sha256", &sum, self.nodes_sha256.as_ref())?;
        let (pods, sum) = open(files, "pods", &self.pods)?;
        check_sum("pods_sha256", &sum, self.pods_sha256.as_ref())?;
        let source = |name, text| Source { name, text };
        let (nodes, pods) = (
            source(&self.nodes, &nodes[..]),
            source(&self.pods, &pods[..]),
        );
        let trace = trace::read(nodes, pods, &columns, Kind::Lrp, self.demand.is_none());
        let trace = trace.map_err(|e| ScenarioError::Field {
            at: "trace".into(),
            message: chain(&e),
        })?;
        let resample = self.resample(&trace)?;
        Ok((trace, resample))
    }

    fn resample(&self, trace: &Trace) -> Result<Option<Resample>, ScenarioError> {
        let Some(per_cent) = self.demand else {
            return match &self.of {
                Some(of) => Err(read::wrong(
                    "trace.of",
                    &of.as_str().into(),
                    "no such field without \"demand\"",
                )),
                None => Ok(None),
            };
        };
        if !(per_cent > 0.0 && per_cent <= 1_000.0) {
            let expected = "a number above 0, at most 1000 (per cent)";
            return Err(read::wrong("trace.demand", &per_cent.into(), expected));
        }
        let has_gpus = |cell: &placement::Cell| cell.total.devices.contains_key(GPU);
        let default = if trace.cells.iter().any(has_gpus) {
            GPU
        } else {
            "memory"
        };
        let name = self.of.as_deref().unwrap_or(default);
        let of = ResourceName::parse(name);
        let there = of.filter(|of| trace::capacity(of, &trace.cells).is_some());
        let of = there.ok_or_else(|| {
            let expected = "a resource of which the nodes have some, and not without limit";
            read::wrong("trace.of", &name.into(), expected)
        })?;
        Ok(Some(Resample { per_cent, of }))
    }

    /// Returns a scenario of this trace as TOML, with the present checksums of the files, so that it gives the same
    /// report wherever files with these checksums are found under their names. Without contenders it names no policies.
    pub fn to_scenario(
        &self,
        files: &ReadFile<'_>,
        seed: Option<u64>,
        contenders: &[Contender],
    ) -> Result<String, ScenarioError> {
        let table = Self {
            nodes_sha256: Some(open(files, "nodes", &self.nodes)?.1),
            pods_sha256: Some(open(files, "pods", &self.pods)?.1),
            ..self.clone()
        };
        let scenario = File {
            name: "trace",
            description: "a trace",
            seed: seed.map(|seed| i64::try_from(seed).unwrap_or(i64::MAX)),
            policies: contenders.iter().map(Contender::to_toml).collect(),
            trace: table,
        };
        toml::to_string(&scenario).map_err(|e| ScenarioError::Field {
            at: "trace".into(),
            message: e.to_string(),
        })
    }
}

#[derive(Serialize)]
struct File {
    name: &'static str,
    description: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<toml::Value>,
    trace: TraceTable,
}

/// Reads a file and returns it with its SHA-256.
fn open(files: &ReadFile<'_>, at: &str, name: &str) -> Result<(Vec<u8>, String), ScenarioError> {
    let text = files(name).map_err(|e| ScenarioError::Field {
        at: format!("trace.{at}"),
        message: format!("{name}: {e}"),
    })?;
    let digest = Sha256::digest(&text);
    let mut sum = String::new();
    for byte in digest {
        // writing to a String cannot fail
        let _ = write!(sum, "{byte:02x}");
    }
    Ok((text, sum))
}

fn check_sum(at: &str, sum: &str, expected: Option<&String>) -> Result<(), ScenarioError> {
    match expected {
        Some(expected) if !expected.eq_ignore_ascii_case(sum) => {
            let expected = format!("{expected} (the file is another one)");
            Err(read::wrong(&format!("trace.{at}"), &sum.into(), &expected))
        }
        _ => Ok(()),
    }
}

fn field(at: &str, invalid: &placement::Invalid) -> ScenarioError {
    let message = format!(
        "{} is not allowed; expected {}",
        invalid.value, invalid.expected
    );
    ScenarioError::Field {
        at: format!("trace.{at}"),
        message,
    }
}

/// Returns the error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
