//! The reason why a job was not placed, in one line: one text per stage, the same for every policy.

use crate::{
    decision::{Tally, Unplaced},
    policy::Filter,
    request::Job,
    run::Form,
    trace::{Emptied, Lack, Trace},
    words,
};

/// The reason of a deferred job: the cell that it wins has reached its limit of starts.
pub(crate) const CELL_STARTING: &str = "waiting to start instance: its cell is starting as many instances as max_starting_per_cell allows";
/// The reason of a job that was decided after the limit of starts in flight was reached.
pub(crate) const IN_FLIGHT: &str = "waiting to start instance: reached in-flight start limit";

/// Returns the reason and the tally of a job for which no cell was left.
pub(crate) fn unplaced(job: &Job, trace: Trace) -> Unplaced {
    let reason = match &trace.emptied_by {
        None | Some(Emptied::NoCells) => "unable to communicate to compatible cells".into(),
        Some(Emptied::Excluded) => {
            "found no compatible cell that the request does not exclude".into()
        }
        Some(Emptied::Score) => "found no compatible cell with a finite score".into(),
        Some(Emptied::Filter(filter)) => text(filter, job, &trace.lacking),
    };
    let by_resource = match &trace.emptied_by {
        Some(Emptied::Filter(filter)) => filter.is_resource(),
        _ => false,
    };
    let rejected = trace.stages.into_iter().flat_map(|stage| stage.rejected);
    let mut tally: Vec<Tally> = rejected.collect();
    if by_resource {
        lacking_too(trace.lacking, &mut tally);
    }
    Unplaced { reason, tally }
}

/// Adds rows for lacking resources. The first resource filter drops all cells; each further resource in the reason gets
/// a row as well, with 0 cells.
fn lacking_too(lacking: Vec<Lack>, tally: &mut Vec<Tally>) {
    for lack in lacking {
        let of_extra = lack.stage != lack.resource;
        let reason = of_extra.then_some(lack.resource);
        let listed = |row: &Tally| row.stage == lack.stage && row.reason == reason;
        if !tally.iter().any(listed) {
            tally.push(Tally {
                stage: lack.stage.to_owned(),
                cells: 0,
                needs: Some(lack.needs as f64),
                best: Some(lack.best as f64),
                devices: lack.devices,
                reason,
                names: Vec::new(),
            });
        }
    }
}

fn text(filter: &Filter, job: &Job, lacking: &[Lack]) -> String {
    let request = &job.request;
    let found_none = "found no compatible cell";
    match filter {
        Filter::Amount(_) | Filter::Extra => {
            let names: Vec<&str> = lacking.iter().map(|lack| lack.resource.as_str()).collect();
            if names.is_empty() {
                return "insufficient resources".into();
            }
            format!("insufficient resources: {}", names.join(", "))
        }
        Filter::Droplets => match request.form() {
            Form::Command => format!("{found_none} that runs anything but droplets"),
            Form::Droplet => format!("{found_none} that runs droplets"),
            Form::Staging => format!("{found_none} that stages apps"),
        },
        Filter::Stack => format!("{found_none} for required stack"),
        Filter::VolumeDrivers => format!("{found_none} with required volume drivers"),
        Filter::PlacementTags => match request.placement_tags.as_slice() {
            [] => format!("{found_none} with no placement tags"),
            [tag] => format!("{found_none} with placement tag \"{tag}\""),
            tags => format!(
                "{found_none} with placement tags {}",
                words::quoted_and(tags)
            ),
        },
        Filter::Evacuating => "unable to communicate to compatible cells".into(),
        Filter::Running => format!("{found_none} that is running"),
        Filter::VolumesFrom => format!("{found_none} with the required volumes"),
        Filter::Reserved => format!("{found_none} that is not reserved"),
        Filter::ControlPlane => format!("{found_none} outside the control plane"),
        Filter::ContainerCount { limit } => {
            format!("{found_none} with fewer than {limit} instances")
        }
        Filter::Capness => {
            let cap = if request.cpu_millis > 0 {
                "with"
            } else {
                "without"
            };
            format!("{found_none} for work {cap} a cpu cap")
        }
        Filter::Networks => format!("{found_none} with the required networks up"),
        Filter::Platform => format!("{found_none} with a platform in the required range"),
        Filter::Traits => format!("{found_none} with exactly the required traits"),
        Filter::Sick => format!("{found_none} whose last starts succeeded"),
        Filter::OvercommitRatios => format!("{found_none} with the required overcommit ratios"),
        Filter::RebootWithin { .. } => format!("{found_none} that does not reboot soon"),
        Filter::Locality => format!("{found_none} that satisfies near and far"),
    }
}
