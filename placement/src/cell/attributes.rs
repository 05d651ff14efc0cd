//! The attributes of a cell: one table, which defines the fields of a cell in messages and files,
//! those of a rep's configuration, `vendue cells set` and `--where`, and docs/ATTRIBUTES.md. A new
//! attribute is a new entry here, and its use in a stage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Cell, Counts, Platform, RecentStart};
use crate::{resources::Resources, times::Timestamp, traits::Trait};

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeShape {
    /// A string.
    String,
    /// A [`Timestamp`].
    Date,
    /// True or false.
    Boolean,
    /// An integer.
    Integer,
    /// A list of strings.
    Strings,
    /// A [`Platform`].
    Platform,
    /// [`Trait`]s by name.
    Traits,
    /// States by name.
    Networks,
    /// Numbers above 0 by name.
    Ratios,
}

impl AttributeShape {
    /// Returns what is expected of a value, or of an entry of a table.
    pub fn expected(self, part: bool) -> &'static str {
        match (self, part) {
            (Self::String, _) => "a string",
            (Self::Date, _) => Timestamp::EXPECTED,
            (Self::Boolean, _) => "true or false",
            (Self::Integer, _) => "an integer within its range",
            (Self::Strings, _) => "a list of strings",
            (Self::Platform, false) => {
                "a version and a stamp, such as {\"version\":\"7.0\",\"stamp\":\"20260301T000000Z\"}"
            }
            (Self::Platform, true) => "a version, or a stamp such as \"20260301T000000Z\"",
            (Self::Traits, false) => "a table of traits, such as {\"ssd\":true}",
            (Self::Traits, true) => "true, false, a string or a list of strings",
            (Self::Networks, false) => "a table of networks, such as {\"external\":\"up\"}",
            (Self::Networks, true) => "a state, such as \"up\"",
            (Self::Ratios, false) => "a table of ratios, such as {\"memory\":1.5}",
            (Self::Ratios, true) => "a number above 0",
        }
    }

    /// Returns whether it has entries that can be named, as in `traits.ssd`.
    pub fn has_parts(self) -> bool {
        matches!(
            self,
            Self::Platform | Self::Traits | Self::Networks | Self::Ratios
        )
    }
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeField {
    /// Its name in messages, files and commands.
    pub name: &'static str,
    /// Its type.
    pub shape: AttributeShape,
    /// Its meaning.
    pub doc: &'static str,
}

/// Returns whether a value is the default of its type, which is not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! attributes {
    ($(
        #[doc = $doc:literal]
        #[serde($($serde:tt)*)]
        $name:ident: $type:ty = $default:expr, $shape:ident;
    )*) => {
        /// The attributes that operators set. All are optional; unknown fields are rejected.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Attributes {
            $(#[doc = $doc] pub $name: $type,)*
        }

        impl Default for Attributes {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Attributes {
            /// All of them, in the order of the documentation.
            pub const FIELDS: &'static [AttributeField] = &[$(AttributeField {
                name: stringify!($name),
                shape: AttributeShape::$shape,
                doc: $doc,
            },)*];
        }

        /// A cell as it is written: the fields of [`Cell`], where they are documented, and those of
        /// [`Counts`] and [`Attributes`] at the same level.
        #[derive(Serialize, Deserialize)]
        #[serde(rename = "Cell")]
        pub(super) struct Flat {
            cell: String,
            #[serde(default, skip_serializing_if = "is_default")]
            index: u32,
            total: Resources,
            available: Resources,
            #[serde(default, skip_serializing_if = "is_default")]
            starting: u32,
            #[serde(
                default,
                deserialize_with = "crate::object::counts",
                skip_serializing_if = "is_default"
            )]
            apps: BTreeMap<String, u32>,
            #[serde(default, skip_serializing_if = "is_default")]
            tasks: u32,
            #[serde(default, skip_serializing_if = "is_default")]
            evacuating: bool,
            #[serde(default, skip_serializing_if = "is_default")]
            cordoned: bool,
            #[serde(
                default,
                deserialize_with = "crate::object::counts",
                skip_serializing_if = "is_default"
            )]
            owners: BTreeMap<String, u32>,
            #[serde(
                default,
                deserialize_with = "crate::object::counts",
                skip_serializing_if = "is_default"
            )]
            tags: BTreeMap<String, u32>,
            #[serde(default, skip_serializing_if = "is_default")]
            cpu_capped: u32,
            #[serde(default, skip_serializing_if = "is_default")]
            cpu_uncapped: u32,
            #[serde(default, skip_serializing_if = "is_default")]
            recent_starts: Vec<RecentStart>,
            $(#[serde($($serde)*)] $name: $type,)*
        }

        impl From<Flat> for Cell {
            fn from(flat: Flat) -> Self {
                Self {
                    cell: flat.cell,
                    index: flat.index,
                    total: flat.total,
                    available: flat.available,
                    counts: Counts {
                        starting: flat.starting,
                        apps: flat.apps,
                        tasks: flat.tasks,
                        owners: flat.owners,
                        tags: flat.tags,
                        cpu_capped: flat.cpu_capped,
                        cpu_uncapped: flat.cpu_uncapped,
                    },
                    evacuating: flat.evacuating,
                    cordoned: flat.cordoned,
                    recent_starts: flat.recent_starts,
                    attributes: Attributes { $($name: flat.$name,)* }.into(),
                }
            }
        }

        impl From<Cell> for Flat {
            fn from(cell: Cell) -> Self {
                let attributes = std::sync::Arc::unwrap_or_clone(cell.attributes);
                let counts = cell.counts;
                Self {
                    cell: cell.cell,
                    index: cell.index,
                    total: cell.total,
                    available: cell.available,
                    starting: counts.starting,
                    apps: counts.apps,
                    tasks: counts.tasks,
                    evacuating: cell.evacuating,
                    cordoned: cell.cordoned,
                    owners: counts.owners,
                    tags: counts.tags,
                    cpu_capped: counts.cpu_capped,
                    cpu_uncapped: counts.cpu_uncapped,
                    recent_starts: cell.recent_starts,
                    $($name: attributes.$name,)*
                }
            }
        }
    };
}

attributes! {
    #[doc = "Availability zone."]
    #[serde(default = "default_zone", skip_serializing_if = "is_default_zone")]
    zone: String = default_zone(), String;
    #[doc = "The zone as a number, for the objective language; absent: the rank of its name."]
    #[serde(default, skip_serializing_if = "is_default")]
    zone_number: Option<u32> = None, Integer;
    #[doc = "Stacks that the cell offers, by name."]
    #[serde(default, skip_serializing_if = "is_default")]
    stacks: Vec<String> = Vec::new(), Strings;
    #[doc = "Placement tags that a request must ask for (Diego)."]
    #[serde(default, skip_serializing_if = "is_default")]
    placement_tags: Vec<String> = Vec::new(), Strings;
    #[doc = "Placement tags that a request may ask for (Diego)."]
    #[serde(default, skip_serializing_if = "is_default")]
    optional_placement_tags: Vec<String> = Vec::new(), Strings;
    #[doc = "Runs droplets (`run.droplet`)."]
    #[serde(default, skip_serializing_if = "is_default")]
    droplets: bool = false, Boolean;
    #[doc = "Runs nothing but droplets: a DEA."]
    #[serde(default, skip_serializing_if = "is_default")]
    droplets_only: bool = false, Boolean;
    #[doc = "The id of the DEA that the cell stands for; set by a bridge."]
    #[serde(default, skip_serializing_if = "is_default")]
    dea: Option<String> = None, String;
    #[doc = "Stages apps (`run.staging`): makes droplets of them."]
    #[serde(default, skip_serializing_if = "is_default")]
    staging: bool = false, Boolean;
    #[doc = "Volume drivers that the cell offers."]
    #[serde(default, skip_serializing_if = "is_default")]
    volume_drivers: Vec<String> = Vec::new(), Strings;
    #[doc = "Volumes on the cell, for `volumes_from`."]
    #[serde(default, skip_serializing_if = "is_default")]
    volumes: Vec<String> = Vec::new(), Strings;
    #[doc = "Source blobs that the cell has cached."]
    #[serde(default, skip_serializing_if = "is_default")]
    cached_blobs: Vec<String> = Vec::new(), Strings;
    #[doc = "`running` if the cell may get work."]
    #[serde(default = "default_status", skip_serializing_if = "is_default_status")]
    status: String = default_status(), String;
    #[doc = "Reserved: gets no work."]
    #[serde(default, skip_serializing_if = "is_default")]
    reserved: bool = false, Boolean;
    #[doc = "A head node: runs the control plane, not work."]
    #[serde(default, skip_serializing_if = "is_default")]
    control_plane: bool = false, Boolean;
    #[doc = "State of each network by name: `up`, or anything else for down."]
    #[serde(default, skip_serializing_if = "is_default")]
    networks: BTreeMap<String, String> = BTreeMap::new(), Networks;
    #[doc = "Traits by name (Triton): true, false, a string or a list of strings."]
    #[serde(default, skip_serializing_if = "is_default")]
    traits: BTreeMap<String, Trait> = BTreeMap::new(), Traits;
    #[doc = "The booted platform image: version and build stamp."]
    #[serde(default, skip_serializing_if = "is_default")]
    platform: Option<Platform> = None, Platform;
    #[doc = "The next planned reboot: RFC 3339, or a day."]
    #[serde(default, skip_serializing_if = "is_default")]
    next_reboot: Option<Timestamp> = None, Date;
    #[doc = "The last boot: RFC 3339, or a day."]
    #[serde(default, skip_serializing_if = "is_default")]
    last_boot: Option<Timestamp> = None, Date;
    #[doc = "The machine, where several cells share one."]
    #[serde(default, skip_serializing_if = "is_default")]
    host: Option<String> = None, String;
    #[doc = "The rack."]
    #[serde(default, skip_serializing_if = "is_default")]
    rack: Option<String> = None, String;
    #[doc = "A higher number is better hardware."]
    #[serde(default, skip_serializing_if = "is_default")]
    hardware_priority: i64 = 0, Integer;
    #[doc = "A named group of cells that reboot together."]
    #[serde(default, skip_serializing_if = "is_default")]
    reboot_batch: Option<String> = None, String;
    #[doc = "Overcommit ratios by resource, as configured; `total` includes them already."]
    #[serde(default, skip_serializing_if = "is_default")]
    overcommit: BTreeMap<String, f64> = BTreeMap::new(), Ratios;
}

fn default_zone() -> String {
    "default".into()
}
fn is_default_zone(zone: &str) -> bool {
    zone == "default"
}
fn default_status() -> String {
    "running".into()
}
fn is_default_status(status: &str) -> bool {
    status == "running"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/ATTRIBUTES.md lists the entries of the table.
    #[test]
    fn the_documentation_has_every_attribute() {
        let text = include_str!("../../../docs/ATTRIBUTES.md");
        let rows = Attributes::FIELDS.iter();
        let expected: Vec<String> = rows
            .map(|field| format!("| `{}` | {:?} | {} |", field.name, field.shape, field.doc))
            .collect();
        let documented: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(documented, expected);
    }

    #[test]
    fn an_absent_attribute_has_its_default_and_is_not_written() {
        let text = r#"{"cell":"a","total":{"memory_mb":1},"available":{"memory_mb":1}}"#;
        let cell: Cell = serde_json::from_str(text).unwrap();
        assert_eq!(*cell.attributes, Attributes::default());
        assert_eq!(serde_json::to_string(&cell).unwrap(), text);
        let all = serde_json::to_value(Attributes::default()).unwrap();
        let names: Vec<&str> = Attributes::FIELDS.iter().map(|field| field.name).collect();
        assert_eq!(all.as_object().map(serde_json::Map::len), Some(names.len()));
        assert!(names.iter().all(|name| all.get(name).is_some()));
    }

    #[test]
    fn all_that_a_cell_says_is_written_and_reads_back() {
        let amounts = serde_json::json!({"memory_mb": 2, "disk_mb": 1, "containers": 3});
        let all = serde_json::json!({
            "cell": "a", "index": 3, "total": amounts, "available": amounts, "starting": 1,
            "apps": {"web": 2}, "tasks": 4, "evacuating": true, "owners": {"acme": 1},
            "tags": {"role=db": 1}, "cpu_capped": 5, "cpu_uncapped": 6,
            "recent_starts": [{"age": "2h", "failed": true}],
            "zone": "z1", "zone_number": 2, "stacks": ["linux"], "droplets": true, "droplets_only": true, "dea": "d1", "staging": true,
            "placement_tags": ["p"],
            "optional_placement_tags": ["o"], "volume_drivers": ["nfs"], "volumes": ["v"],
            "cached_blobs": ["b"], "status": "offline", "reserved": true, "control_plane": true,
            "networks": {"external": "up"}, "traits": {"ssd": true},
            "platform": {"version": "7.0", "stamp": "20260301T000000Z"},
            "next_reboot": "2026-06-20", "last_boot": "2026-01-15", "host": "h1", "rack": "r1",
            "hardware_priority": -1, "reboot_batch": "b7", "overcommit": {"memory": 1.5},
        });
        let names = all.as_object().unwrap();
        assert!(
            Attributes::FIELDS
                .iter()
                .all(|field| names.contains_key(field.name))
        );
        assert!(Counts::FIELDS.iter().all(|name| names.contains_key(*name)));
        let cell: Cell = serde_json::from_value(all.clone()).unwrap();
        assert_eq!(serde_json::to_value(&cell).unwrap(), all);
    }

    #[test]
    fn a_wrong_value_is_told_what_the_attribute_holds_and_a_wrong_part_what_the_part_holds() {
        use AttributeShape as Shape;
        for (shape, whole, part) in [
            (Shape::String, "a string", "a string"),
            (Shape::Date, Timestamp::EXPECTED, Timestamp::EXPECTED),
            (Shape::Boolean, "true or false", "true or false"),
            (Shape::Strings, "a list of strings", "a list of strings"),
            (
                Shape::Platform,
                "a version and a stamp",
                "a version, or a stamp",
            ),
            (Shape::Traits, "a table of traits", "true, false, a string"),
            (Shape::Networks, "a table of networks", "a state"),
            (Shape::Ratios, "a table of ratios", "a number above 0"),
            (Shape::Integer, "an integer", "an integer"),
        ] {
            assert!(shape.expected(false).starts_with(whole), "{shape:?}");
            assert!(shape.expected(true).starts_with(part), "{shape:?}");
            assert_eq!(shape.has_parts(), whole != part, "{shape:?}");
        }
    }
}
