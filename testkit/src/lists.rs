//! What cells report about their instances, for tests of code that reads it.

use shared::{
    Incarnation, InstanceId, VERSION,
    wire::{Instance, InstanceState, InstancesAnswer, RunningIds},
};

/// Returns an LRP of 16 MiB that has been running for 1 ms, with nothing else set.
pub fn instance(id: InstanceId, app: &str, index: u32) -> Instance {
    Instance {
        age_ms: 1,
        memory_mb: 16,
        disk_mb: 16,
        ..Instance::new(id, app, index, InstanceState::Running)
    }
}

/// Returns a cell's whole list in one message, of its first incarnation.
pub fn list(cell: &str, instances: Vec<Instance>) -> InstancesAnswer {
    InstancesAnswer {
        v: VERSION,
        cell: cell.to_owned(),
        zone: "default".to_owned(),
        incarnation: Incarnation::from_u128(1),
        seq: 1,
        part: 1,
        parts: 1,
        instances,
        ids: RunningIds::default(),
        more: false,
    }
}
