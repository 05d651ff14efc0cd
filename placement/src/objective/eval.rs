//! The values that an objective reads from a job and a cell.

use super::parse::{AmountOf, Id, List, OfCell, OfJob};
use crate::{
    cell::Cell,
    free::Free,
    request::{Job, Request},
    resource_name::ResourceName,
    resources::{Amounts, MAX_AMOUNT, Resources},
};

/// The job's values, computed once for all cells.
#[derive(Clone, Debug)]
pub(crate) struct JobFacts {
    pub(crate) required_disk: f64,
    pub(crate) required_memory: f64,
    pub(crate) app: f64,
    pub(crate) instance: f64,
    pub(crate) instances: f64,
    pub(crate) azs: f64,
}

impl JobFacts {
    pub(crate) fn new(job: &Job, azs: f64) -> Self {
        let request = &job.request;
        Self {
            required_disk: request.disk_mb as f64,
            required_memory: request.memory_mb as f64,
            app: app_number(&request.app),
            instance: f64::from(job.index),
            instances: f64::from(request.instances),
            azs,
        }
    }

    pub(crate) fn number(&self, attribute: OfJob) -> f64 {
        match attribute {
            OfJob::RequiredDisk => self.required_disk,
            OfJob::RequiredMemory => self.required_memory,
            OfJob::App => self.app,
            OfJob::Instance => self.instance,
            OfJob::Instances => self.instances,
        }
    }
}

/// Returns `ai.AppID`: the app's name if it is decimal and below 2^53, else its 32-bit FNV-1a hash (a 64-bit one would
/// lose its low bits in a float).
pub(crate) fn app_number(app: &str) -> f64 {
    let decimal = !app.is_empty() && app.bytes().all(|b| b.is_ascii_digit());
    if decimal
        && let Ok(number) = app.parse::<u64>()
        && number < 1 << 53
    {
        return number as f64;
    }
    let hash = app.bytes().fold(0x811c_9dc5_u32, |h, byte| {
        (h ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    f64::from(hash)
}

/// Everything about one cell for one job.
pub(crate) struct Facts<'a> {
    pub(crate) job: &'a JobFacts,
    pub(crate) request: &'a crate::request::Request,
    pub(crate) cell: &'a Cell,
    /// `r.AvailZoneNumber`.
    pub(crate) zone: f64,
}

impl Facts<'_> {
    pub(super) fn number(&self, attribute: OfCell) -> f64 {
        let Cell {
            available, total, ..
        } = self.cell;
        // unlimited counts as completely free, whatever the total
        let disk = |amount: Option<i64>| amount.unwrap_or(MAX_AMOUNT) as f64;
        match attribute {
            OfCell::AvailableMemory => available.memory_mb as f64,
            OfCell::AvailableDisk => disk(available.disk_mb),
            OfCell::TotalMemory => total.memory_mb as f64,
            OfCell::TotalDisk => disk(total.disk_mb),
            OfCell::Zone => self.zone,
            OfCell::Stack => {
                let wanted = self.request.stack.as_ref();
                f64::from(wanted.is_none_or(|stack| self.cell.stacks.contains(stack)))
            }
        }
    }

    pub(super) fn amount(&self, of: AmountOf, resource: &ResourceName) -> f64 {
        let Cell { total, .. } = self.cell;
        amount(of, resource, &Free::of(self.cell), self.request, total)
    }

    pub(super) fn count(&self, id: Id, list: List) -> f64 {
        let id = match id {
            Id::App => Some(&self.request.app),
            Id::Blob => self.request.blob(),
            Id::Stack => self.request.stack.as_ref(),
        };
        let Some(id) = id else {
            return 0.0;
        };
        match list {
            List::Apps => f64::from(self.cell.count_of(id)),
            List::Blobs => self.cell.cached_blobs.iter().filter(|b| *b == id).count() as f64,
        }
    }
}

/// Returns an amount of a resource that a request asks for or a cell has. Unlimited resources count as [`MAX_AMOUNT`],
/// all of it free.
pub(crate) fn amount(
    of: AmountOf,
    resource: &ResourceName,
    free: &Free<'_>,
    request: &Request,
    total: &Resources,
) -> f64 {
    let amount = match of {
        AmountOf::Required => resource.wanted(request, total),
        AmountOf::Available => resource.free(free),
        AmountOf::Total => resource.total(total),
    };
    if amount == Amounts::UNLIMITED {
        return MAX_AMOUNT as f64;
    }
    amount as f64
}
