//! The columns of a trace, by field.

use std::{collections::BTreeMap, str::FromStr};

use placement::Invalid;

/// A field, its default column, and whether that is required. A field without a default is only read if a column is
/// mapped to it.
pub(super) struct Field {
    pub(super) name: &'static str,
    default: Option<&'static str>,
    required: bool,
}

const fn required(name: &'static str) -> Field {
    Field {
        name,
        default: Some(name),
        required: true,
    }
}

const fn optional(name: &'static str) -> Field {
    Field {
        name,
        default: Some(name),
        required: false,
    }
}

const fn mapped(name: &'static str) -> Field {
    Field {
        name,
        default: None,
        required: false,
    }
}

const NODES: [Field; 8] = [
    required("sn"),
    required("cpu_milli"),
    required("memory_mib"),
    optional("gpu"),
    optional("model"),
    mapped("zone"),
    mapped("disk_mib"),
    mapped("containers"),
];
const PODS: [Field; 9] = [
    required("name"),
    required("cpu_milli"),
    required("memory_mib"),
    required("creation_time"),
    required("deletion_time"),
    optional("num_gpu"),
    optional("gpu_milli"),
    optional("gpu_spec"),
    mapped("disk_mib"),
];

/// The columns of one file: for each field the column's name, and whether it is required.
pub(super) type Wanted = BTreeMap<&'static str, (String, bool)>;

/// The columns that are read, by name; their order does not matter, and others are ignored.
///
/// By default nodes have `sn`, `cpu_milli`, `memory_mib` (required), `gpu` and `model`; pods have `name`, `cpu_milli`,
/// `memory_mib`, `creation_time`, `deletion_time` (required), `num_gpu`, `gpu_milli` and `gpu_spec`. Only read if
/// mapped: `zone`, `disk_mib` and `containers` of nodes, and `disk_mib` of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    pub(super) nodes: Wanted,
    pub(super) pods: Wanted,
}

impl Default for Columns {
    fn default() -> Self {
        let wanted = |fields: &[Field]| {
            let with_default = fields.iter().filter_map(|field| {
                let column = field.default?.to_owned();
                Some((field.name, (column, field.required)))
            });
            with_default.collect()
        };
        Self {
            nodes: wanted(&NODES),
            pods: wanted(&PODS),
        }
    }
}

impl Columns {
    /// Returns the columns of pods, without those of times if nobody reads them.
    pub(super) fn of_pods(&self, timed: bool) -> Wanted {
        let mut pods = self.pods.clone();
        if !timed {
            pods.remove("creation_time");
            pods.remove("deletion_time");
        }
        pods
    }
}

impl FromStr for Columns {
    type Err = Invalid;

    /// Reads `field=column` pairs, separated by commas, on top of the defaults. A field that both files have refers to
    /// both, unless prefixed by `nodes.` or `pods.`. A mapped column is required.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut columns = Self::default();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let wrong = |expected: String| Invalid::new("columns", format!("{pair:?}"), expected);
            let (field, column) = pair
                .split_once('=')
                .filter(|(_, column)| !column.trim().is_empty())
                .ok_or_else(|| wrong("field=column, such as cpu_milli=cpu".into()))?;
            let (field, column) = (field.trim(), column.trim());
            let of_nodes = field.strip_prefix("nodes.");
            let of_pods = field.strip_prefix("pods.");
            let mut found = false;
            if of_pods.is_none() {
                let name = of_nodes.unwrap_or(field);
                found |= map(&mut columns.nodes, &NODES, name, column);
            }
            if of_nodes.is_none() {
                let name = of_pods.unwrap_or(field);
                found |= map(&mut columns.pods, &PODS, name, column);
            }
            if !found {
                return Err(wrong(known()));
            }
        }
        Ok(columns)
    }
}

fn map(wanted: &mut Wanted, fields: &[Field], name: &str, column: &str) -> bool {
    let Some(field) = fields.iter().find(|field| field.name == name) else {
        return false;
    };
    wanted.insert(field.name, (column.to_owned(), true));
    true
}

fn known() -> String {
    let list = |prefix: &str, fields: &[Field]| {
        let names: Vec<_> = fields
            .iter()
            .map(|f| format!("{prefix}{}", f.name))
            .collect();
        names.join(", ")
    };
    format!(
        "one of {}, {}",
        list("nodes.", &NODES),
        list("pods.", &PODS)
    )
}
