//! What a cell has and what a job asks for. The resources of every cell are listed here and nowhere else: all code
//! about amounts uses [`Resource::ALL`].

use std::{
    collections::BTreeMap,
    ops::{Index, IndexMut},
};

use serde::{Deserialize, Serialize};

use crate::devices::DeviceSet;
pub use crate::invalid::MAX_AMOUNT;

/// A resource of every cell, as opposed to the `extra` ones that operators add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// MiB.
    Memory,
    /// MiB.
    Disk,
    /// The number of instances.
    Containers,
    /// Thousandths of a core.
    Cpu,
}

impl Resource {
    /// All of them, in the order of [`Amounts`].
    pub const ALL: [Self; 4] = [Self::Memory, Self::Disk, Self::Containers, Self::Cpu];

    /// Returns its name in policies, reasons and tallies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Containers => "containers",
            Self::Cpu => "cpu",
        }
    }

    /// Returns the field that holds it in messages and files.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Memory => "memory_mb",
            Self::Disk => "disk_mb",
            Self::Containers => "containers",
            Self::Cpu => "cpu_millis",
        }
    }

    /// Returns whether a cell with a total of 0 gets no work at all, not even work that needs none of it.
    pub(crate) const fn is_vital(self) -> bool {
        !matches!(self, Self::Cpu)
    }
}

/// An amount of each [`Resource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts([i64; Resource::ALL.len()]);

impl Index<Resource> for Amounts {
    type Output = i64;

    fn index(&self, resource: Resource) -> &i64 {
        &self.0[resource as usize]
    }
}

impl IndexMut<Resource> for Amounts {
    fn index_mut(&mut self, resource: Resource) -> &mut i64 {
        &mut self.0[resource as usize]
    }
}

impl Amounts {
    /// An unlimited amount of a cell; debits do not change it.
    pub const UNLIMITED: i64 = i64::MAX;
    /// A need that any amount meets, even a negative one.
    pub const NO_NEED: i64 = i64::MIN;

    /// Returns the result of `amount` for each resource.
    pub fn from_fn(amount: impl Fn(Resource) -> i64) -> Self {
        Self(Resource::ALL.map(amount))
    }

    /// Returns the same amount of everything.
    pub const fn all(amount: i64) -> Self {
        Self([amount; Resource::ALL.len()])
    }

    /// Subtracts `wanted`, except from unlimited amounts.
    pub fn debit(&mut self, wanted: &Self) {
        for (have, wanted) in self.0.iter_mut().zip(wanted.0) {
            if *have != Self::UNLIMITED {
                *have -= wanted;
            }
        }
    }

    /// Returns whether there is enough of everything.
    // written out, because in the walk over all cells the compiler does not unroll a loop. Full cells usually lack
    // memory, so that the first comparison is mostly the last
    #[inline]
    pub fn covers(&self, needed: &Self) -> bool {
        let Self([memory, disk, containers, cpu]) = *self;
        let Self([need_memory, need_disk, need_containers, need_cpu]) = *needed;
        memory >= need_memory
            && disk >= need_disk
            && containers >= need_containers
            && cpu >= need_cpu
    }

    /// Returns the minimum of each.
    pub fn lower(self, other: Self) -> Self {
        Self::from_fn(|resource| self[resource].min(other[resource]))
    }
}

/// A cell's resources: in total (`total`) or not reserved (`available`).
///
/// `available` may be negative if a cell is overcommitted. Absent disk or containers mean
/// "unlimited"; absent cpu, `extra` or devices mean none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// MiB (2^20 bytes).
    pub memory_mb: i64,
    /// MiB; absent = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<i64>,
    /// How many instances fit; absent = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<i64>,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_millis: i64,
    /// Extra resources: `gpu`, licence seats and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
    /// Sets of equal devices by name, such as `gpu`; absent = none.
    #[serde(
        default,
        deserialize_with = "crate::object::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub devices: BTreeMap<String, DeviceSet>,
}

impl Resources {
    /// Creates resources with memory and disk in MiB and a number of instances; no cpu, extras or devices.
    pub fn new(memory_mb: i64, disk_mb: i64, containers: i64) -> Self {
        Self {
            memory_mb,
            disk_mb: Some(disk_mb),
            containers: Some(containers),
            ..Self::default()
        }
    }

    /// Returns the amount; none = unlimited.
    pub fn get(&self, resource: Resource) -> Option<i64> {
        match resource {
            Resource::Memory => Some(self.memory_mb),
            Resource::Disk => self.disk_mb,
            Resource::Containers => self.containers,
            Resource::Cpu => Some(self.cpu_millis),
        }
    }

    /// Returns the amount for modification.
    pub(crate) fn get_mut(&mut self, resource: Resource) -> Option<&mut i64> {
        match resource {
            Resource::Memory => Some(&mut self.memory_mb),
            Resource::Disk => self.disk_mb.as_mut(),
            Resource::Containers => self.containers.as_mut(),
            Resource::Cpu => Some(&mut self.cpu_millis),
        }
    }

    /// Returns all amounts except extra ones; [`Amounts::UNLIMITED`] if there is no limit.
    pub fn amounts(&self) -> Amounts {
        Amounts::from_fn(|resource| self.get(resource).unwrap_or(Amounts::UNLIMITED))
    }

    /// Returns every limited amount by its field's name, including extra resources, but not devices.
    pub fn fields(&self) -> impl Iterator<Item = (&str, i64)> {
        let limited = |resource: Resource| Some((resource.field(), self.get(resource)?));
        let extra = self.extra.iter().map(|(name, amount)| (&**name, *amount));
        Resource::ALL.into_iter().filter_map(limited).chain(extra)
    }

    /// Returns the amount of an extra resource; 0 if absent.
    pub fn extra(&self, name: &str) -> i64 {
        self.extra.get(name).copied().unwrap_or(0)
    }
}

/// Returns Diego's resource term: the mean of the fractions of memory, disk and containers that are used when `wanted`
/// is placed on a cell with `available` left of `total` ([`crate::policy::Term::Resources`]; cpu is not included).
/// Amounts that are unlimited in either add 0; a total of 0 gives no finite number.
#[inline]
pub(crate) fn used_after(available: &Amounts, wanted: &Amounts, total: &Amounts) -> f64 {
    let used = |resource: Resource| {
        let (available, total) = (available[resource], total[resource]);
        if available == Amounts::UNLIMITED || total == Amounts::UNLIMITED {
            return 0.0;
        }
        1.0 - (available - wanted[resource]) as f64 / total as f64
    };
    (used(Resource::Memory) + used(Resource::Disk) + used(Resource::Containers)) / 3.0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) fn is_zero(n: &i64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests;
