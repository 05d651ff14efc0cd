//! The results of `vendue bench apps`, for people and for programs.

use serde::Serialize;

use crate::bench::{
    Latency,
    report::{mib, ms},
};

/// Every requested figure.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crashes: Option<Crashes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollout: Option<RolloutTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<Loss>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tasks: Option<TasksTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durable: Option<DurableRate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rest: Option<Rest>,
}

/// The time from the event of an instance's end to its next instance.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Crashes {
    pub(super) cells: u32,
    pub(super) instances: u32,
    /// Number of ends that were measured.
    pub(super) measured: usize,
    /// Until it runs, according to its cell.
    pub(super) running: Latency,
    /// Until the event that reports it.
    pub(super) told: Latency,
}

/// The rollout of a new version of many instances.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct RolloutTime {
    pub(super) cells: u32,
    pub(super) instances: u32,
    pub(super) in_flight: u32,
    pub(super) seconds: f64,
}

/// The loss of half of the cells at once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Loss {
    pub(super) cells: u32,
    pub(super) lost_cells: u32,
    pub(super) instances: u32,
    /// Number of instances on the lost cells.
    pub(super) lost_instances: u32,
    /// How long a silent cell is considered alive.
    pub(super) ttl_seconds: f64,
    /// Until all lost cells counted as lost.
    pub(super) noticed_seconds: f64,
    /// Until everything ran again.
    pub(super) seconds: f64,
}

/// Many short tasks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct TasksTime {
    pub(super) cells: u32,
    pub(super) tasks: u32,
    /// Until all were acknowledged.
    pub(super) submitted_seconds: f64,
    /// Until the ends of all were stored.
    pub(super) seconds: f64,
}

/// Durable requests, one per message.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct DurableRate {
    pub(super) cells: u32,
    pub(super) requests: u32,
    pub(super) in_flight: usize,
    pub(super) acknowledged_per_second: f64,
    /// Messages of the same size that the server stores and acknowledges by itself.
    pub(super) published_per_second: f64,
    /// The first divided by the second.
    pub(super) ratio: f64,
}

/// A manager with nothing to do.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Rest {
    pub(super) cells: u32,
    pub(super) apps: u32,
    pub(super) instances: u32,
    /// From the first put until everything was running.
    pub(super) started_seconds: f64,
    pub(super) seconds: f64,
    /// In per cent of one core.
    pub(super) manager_cpu_percent: f64,
    /// Resident memory.
    pub(super) manager_kib: u64,
}

/// A row of the table.
pub(super) struct Target {
    pub(super) what: String,
    pub(super) figure: String,
    /// The target for the figure.
    pub(super) aim: String,
    pub(super) beside: String,
}

fn row(what: &str, figure: String, aim: impl Into<String>, beside: String) -> Target {
    Target {
        what: what.into(),
        figure,
        aim: aim.into(),
        beside,
    }
}

impl Report {
    pub(super) fn rows(&self) -> Vec<Target> {
        let mut rows = Vec::new();
        rows.extend(self.crashes.iter().flat_map(Crashes::rows));
        rows.extend(self.rollout.iter().map(RolloutTime::row));
        rows.extend(self.loss.iter().map(Loss::row));
        rows.extend(self.tasks.iter().map(TasksTime::row));
        rows.extend(self.durable.iter().map(DurableRate::row));
        rows.extend(self.rest.iter().flat_map(Rest::rows));
        rows
    }
}

impl Crashes {
    fn rows(&self) -> [Target; 2] {
        let (running, told) = (&self.running, &self.told);
        [
            row(
                "from the event of an end to the next running instance, p50",
                ms(running.p50_us),
                "under 100 ms",
                format!(
                    "p99 {}; {} ends, {} instances on {} cells",
                    ms(running.p99_us),
                    self.measured,
                    self.instances,
                    self.cells
                ),
            ),
            row(
                "… to the event that says so, p50",
                ms(told.p50_us),
                "",
                format!(
                    "p99 {}; cells gather events for up to 100 ms",
                    ms(told.p99_us)
                ),
            ),
        ]
    }
}

impl RolloutTime {
    fn row(&self) -> Target {
        row(
            "a rollout",
            format!("{:.1} s", self.seconds),
            "under 30 s",
            format!(
                "{} instances on {} cells, {} in flight",
                self.instances, self.cells, self.in_flight
            ),
        )
    }
}

impl Loss {
    fn row(&self) -> Target {
        row(
            "half of the cells lost, until everything runs again",
            format!("{:.1} s", self.seconds),
            format!("under {} s", 2.0 * self.ttl_seconds + 10.0),
            format!(
                "{} of {} cells, {} of {} instances; noticed after {:.1} s",
                self.lost_cells,
                self.cells,
                self.lost_instances,
                self.instances,
                self.noticed_seconds
            ),
        )
    }
}

impl TasksTime {
    fn row(&self) -> Target {
        row(
            "tasks, from the first submission to the last end",
            format!("{:.1} s", self.seconds),
            "",
            format!(
                "{} tasks of 10 ms on {} cells, {:.0} in a second; all acknowledged after {:.1} s",
                self.tasks,
                self.cells,
                f64::from(self.tasks) / self.seconds,
                self.submitted_seconds
            ),
        )
    }
}

impl DurableRate {
    fn row(&self) -> Target {
        row(
            "durable requests acknowledged in a second",
            format!("{:.0}", self.acknowledged_per_second),
            "",
            format!(
                "{:.2} of the {:.0} messages that the server itself stores; {} requests, {} in flight, each on the disk",
                self.ratio, self.published_per_second, self.requests, self.in_flight
            ),
        )
    }
}

impl Rest {
    fn rows(&self) -> [Target; 2] {
        [
            row(
                "manager at rest, resident",
                mib(self.manager_kib),
                "under 400 MiB",
                format!(
                    "{} instances of {} apps on {} cells, started in {:.0} s",
                    self.instances, self.apps, self.cells, self.started_seconds
                ),
            ),
            row(
                "manager at rest",
                format!("{:.1} % of a core", self.manager_cpu_percent),
                "under 20 %",
                format!("over {:.0} s", self.seconds),
            ),
        ]
    }
}
