//! Sets of equal devices, such as the gpus of a cell: what a cell has, what a request asks for, and the rule by which
//! an instance gets its devices.
//!
//! A request asks for a number of devices of a set and an amount of each. **The rule**: of the devices with enough
//! free, it gets those with the least free, and among equal ones those with the lowest numbers. So a share goes to the
//! device that it fills best, which keeps whole devices whole, and whole devices are assigned from 0 upwards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    invalid::{Invalid, MAX_AMOUNT, check_count},
    words::shorten,
};

/// The most devices of a set.
pub const MAX_DEVICES: u32 = 256;
/// The most sets of a cell or a request.
pub const MAX_DEVICE_SETS: usize = 16;
/// The most models that a request may name for a set; below, the most characters of one.
const MAX_MODELS: usize = 64;
const MAX_MODEL: usize = 128;

/// A set of equal devices of a cell: in total, or not reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSet {
    /// How many there are; their numbers are 0 to `count` - 1.
    pub count: u32,
    /// What each of them has, in a unit of the operator's choice, such as thousandths or MiB of its memory.
    pub each: i64,
    /// Their model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// In `available`: what each device has free, by number; negative if it is overcommitted. Empty means that each is
    /// completely free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free: Vec<i64>,
}

/// What one instance needs of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNeed {
    /// How many devices, of one cell.
    pub count: u32,
    /// How much of each; none means all of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    /// Models that are acceptable; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

/// The devices of a set that an instance has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceShare {
    /// How much of each.
    pub amount: i64,
    /// Their numbers, ascending.
    pub numbers: Vec<u32>,
}

/// The devices that an instance has on its cell, by set name.
pub type DeviceShares = BTreeMap<String, DeviceShare>;

/// How close insufficient devices come to a need: the most that one of them has free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDevices {
    /// What is needed of each.
    pub amount: i64,
    /// The most that a device has free; 0 if there is none.
    pub most: i64,
    /// How many devices have that much free; 0 if no device could serve.
    pub devices: u64,
}

impl DeviceSet {
    /// Creates a set of this many devices with this much each.
    pub fn new(count: u32, each: i64) -> Self {
        Self {
            count,
            each,
            ..Self::default()
        }
    }

    /// Returns what a device has free; 0 if the number does not exist.
    pub fn free(&self, number: u32) -> i64 {
        if number >= self.count {
            return 0;
        }
        self.free.get(number as usize).copied().unwrap_or(self.each)
    }

    /// Returns the sum of what is free on all devices; overcommitted ones count as 0.
    pub fn sum_free(&self) -> i64 {
        (0..self.count).map(|number| self.free(number).max(0)).sum()
    }

    /// Returns how many devices have enough free for the need; 0 if they are of another model.
    pub(crate) fn enough(&self, need: &DeviceNeed) -> u32 {
        let amount = need.amount.unwrap_or(self.each);
        if !self.is_of(need) {
            return 0;
        }
        if self.free.is_empty() {
            return if amount <= self.each { self.count } else { 0 };
        }
        let enough = (0..self.count).filter(|number| self.free(*number) >= amount);
        u32::try_from(enough.count()).unwrap_or(u32::MAX)
    }

    /// Returns how many devices have enough free for the need, and the sum of what is free on those that have too
    /// little. Devices of another model all have too little.
    pub(crate) fn enough_and_too_small(&self, need: &DeviceNeed) -> (u32, i64) {
        let amount = need.amount.unwrap_or(self.each);
        if !self.is_of(need) {
            return (0, self.sum_free());
        }
        let (mut enough, mut too_small) = (0, 0);
        for number in 0..self.count {
            let free = self.free(number);
            if free >= amount {
                enough += 1;
            } else {
                too_small += free.max(0);
            }
        }
        (enough, too_small)
    }

    /// Returns the devices that an instance with this need gets, by the rule above; none if too few have enough.
    pub(crate) fn choose(&self, need: &DeviceNeed) -> Option<DeviceShare> {
        if !self.is_of(need) {
            return None;
        }
        let amount = need.amount.unwrap_or(self.each);
        let mut fitting: Vec<(i64, u32)> = (0..self.count)
            .map(|number| (self.free(number), number))
            .filter(|(free, _)| *free >= amount)
            .collect();
        fitting.sort_unstable();
        let chosen = fitting.get(..need.count as usize)?;
        let mut numbers: Vec<u32> = chosen.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        Some(DeviceShare { amount, numbers })
    }

    /// Adds `sign` times the share to what is free.
    pub(crate) fn apply(&mut self, share: &DeviceShare, sign: i64) {
        if self.free.is_empty() {
            self.free = vec![self.each; self.count as usize];
        }
        for number in &share.numbers {
            if let Some(free) = self.free.get_mut(*number as usize) {
                *free += sign * share.amount;
            }
        }
        // a single form for a set that is completely free, so that equal sets compare equal
        if self.free.iter().all(|free| *free == self.each) {
            self.free.clear();
        }
    }

    /// Returns how many instances with this need get their devices, one after the other; at most `most`.
    pub(crate) fn room(&self, need: &DeviceNeed, most: i64) -> i64 {
        if !self.is_of(need) {
            return 0;
        }
        let amount = need.amount.unwrap_or(self.each).max(1);
        let free = (0..self.count).map(|number| self.free(number).max(0));
        // the two common needs can be counted without a copy of the set
        if need.count == 1 {
            return free.map(|free| free / amount).sum::<i64>().min(most);
        }
        if 2 * amount > self.each {
            return (i64::from(self.enough(need)) / i64::from(need.count)).min(most);
        }
        self.room_one_by_one(need, most)
    }

    /// The definition of [`DeviceSet::room`].
    fn room_one_by_one(&self, need: &DeviceNeed, most: i64) -> i64 {
        let mut left = self.clone();
        let mut room = 0;
        while room < most
            && let Some(mut share) = left.choose(need)
        {
            // the chosen ones had the least free and now have less, so they stay chosen until one is used up
            let free = share.numbers.iter().map(|number| left.free(*number));
            let least = free.min().unwrap_or(0);
            let times = (least / share.amount.max(1)).clamp(1, most - room);
            share.amount *= times;
            left.apply(&share, -1);
            room += times;
        }
        room
    }

    /// Returns the most that a device has free for the need.
    fn nearest(&self, need: &DeviceNeed) -> FreeDevices {
        let mut nearest = FreeDevices {
            amount: need.amount.unwrap_or(self.each),
            ..FreeDevices::default()
        };
        if self.is_of(need) {
            for number in 0..self.count {
                nearest.merge(FreeDevices {
                    most: self.free(number),
                    devices: 1,
                    ..nearest
                });
            }
        }
        nearest
    }

    fn is_of(&self, need: &DeviceNeed) -> bool {
        need.models.is_empty()
            || self
                .model
                .as_ref()
                .is_some_and(|model| need.models.contains(model))
    }

    /// Rejects a set that no cell can have. `total` means that this is a total, in which `free` is meaningless.
    pub(crate) fn check(&self, field: &str, total: bool) -> Result<(), Invalid> {
        check_number(
            &format!("{field}.count"),
            self.count.into(),
            MAX_DEVICES.into(),
        )?;
        check_number(&format!("{field}.each"), self.each, MAX_AMOUNT)?;
        if let Some(model) = &self.model {
            check_model(&format!("{field}.model"), model)?;
        }
        let listed = self.free.len();
        if total && listed > 0 {
            let expected = "no list: in a total everything is free";
            return Err(Invalid::new(format!("{field}.free"), "a list", expected));
        }
        if listed > 0 && listed != self.count as usize {
            let expected = format!("one for each of the {} devices", self.count);
            let value = format!("{listed} amounts");
            return Err(Invalid::new(format!("{field}.free"), value, expected));
        }
        let allowed = -MAX_AMOUNT..=self.each;
        if let Some(free) = self.free.iter().find(|free| !allowed.contains(free)) {
            let expected = format!("amounts from {} to each ({})", -MAX_AMOUNT, self.each);
            return Err(Invalid::new(format!("{field}.free"), free, expected));
        }
        Ok(())
    }

    /// Returns whether both are the same devices, whatever is free on them.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.count, self.each, &self.model) == (other.count, other.each, &other.model)
    }
}

impl DeviceNeed {
    /// Creates a need for this many devices with this much of each; none means all of each.
    pub fn new(count: u32, amount: Option<i64>) -> Self {
        Self {
            count,
            amount,
            models: Vec::new(),
        }
    }

    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        check_number(
            &format!("{field}.count"),
            self.count.into(),
            MAX_DEVICES.into(),
        )?;
        if let Some(amount) = self.amount {
            check_number(&format!("{field}.amount"), amount, MAX_AMOUNT)?;
        }
        let models = format!("{field}.models");
        check_count(&models, self.models.len(), MAX_MODELS)?;
        self.models
            .iter()
            .try_for_each(|model| check_model(&models, model))
    }
}

/// Rejects shares that no instance can have: bad names, no amount, numbers out of range or out of order.
///
/// # Errors
/// Names the field, below `field`.
pub fn check_device_shares(field: &str, given: &DeviceShares) -> Result<(), Invalid> {
    check_count(field, given.len(), MAX_DEVICE_SETS)?;
    for (name, share) in given {
        check_device_name(field, name)?;
        share.check(&format!("{field}.{name}"))?;
    }
    Ok(())
}

impl DeviceShare {
    fn check(&self, field: &str) -> Result<(), Invalid> {
        check_number(&format!("{field}.amount"), self.amount, MAX_AMOUNT)?;
        let ascending = self.numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let last = self.numbers.last().copied().unwrap_or(0);
        if ascending && last < MAX_DEVICES {
            return Ok(());
        }
        let expected = format!("numbers below {MAX_DEVICES} in ascending order, each once");
        let value = format!("{:?}", self.numbers);
        Err(Invalid::new(format!("{field}.numbers"), value, expected))
    }
}

impl FreeDevices {
    /// Returns how close the set of this name comes to the need.
    pub(crate) fn of(sets: &BTreeMap<String, DeviceSet>, name: &str, need: &DeviceNeed) -> Self {
        let set = sets.get(name);
        set.map(|set| set.nearest(need)).unwrap_or_default()
    }

    /// Merges other devices; if the sets differ, those with the most free count.
    pub(crate) fn merge(&mut self, other: Self) {
        if other.devices == 0 {
            return;
        }
        if self.devices == 0 || other.most > self.most {
            *self = other;
        } else if other.most == self.most {
            self.devices += other.devices;
        }
    }
}

impl std::fmt::Display for FreeDevices {
    /// Writes, for example, `3 devices have 200 free, none has 300`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            amount,
            most,
            devices,
        } = self;
        match devices {
            0 => f.write_str("there is no such device"),
            _ if most >= amount => write!(f, "no cell has enough devices with {amount} free"),
            1 => write!(f, "one device has {most} free, none has {amount}"),
            _ => write!(f, "{devices} devices have {most} free, none has {amount}"),
        }
    }
}

/// The names of the resources of every cell.
pub(crate) const TAKEN: [&str; 4] = ["memory", "disk", "containers", "cpu"];

/// Rejects a name from which no environment variable can be made, and names of other resources.
pub(crate) fn check_device_name(field: &str, name: &str) -> Result<(), Invalid> {
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    let taken = TAKEN.contains(&name);
    if begins && name.len() <= 64 && name.bytes().all(fine) && !taken {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        shorten(name),
        "names of 1 to 64 of a-z 0-9 _ that begin with a letter; not memory, disk, containers or cpu",
    ))
}

fn check_number(field: &str, number: i64, most: i64) -> Result<(), Invalid> {
    if (1..=most).contains(&number) {
        return Ok(());
    }
    let expected = format!("a number from 1 to {most}");
    Err(Invalid::new(field, number, expected))
}

fn check_model(field: &str, model: &str) -> Result<(), Invalid> {
    if (1..=MAX_MODEL).contains(&model.len()) {
        return Ok(());
    }
    let expected = format!("1 to {MAX_MODEL} characters");
    Err(Invalid::new(field, shorten(model), expected))
}

#[cfg(test)]
mod tests;
