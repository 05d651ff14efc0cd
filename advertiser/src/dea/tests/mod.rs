//! The dialect against bodies as the originals wrote them, and the estate against decisions of a Cloud Controller.

mod bodies;
mod bridge;
mod choice;
mod estate;
mod exchange;
mod facade;
mod odd;

use serde_json::{Value, json};

/// Returns an advertisement as a DEA of early 2016 sends it.
fn advertisement(id: &str, zone: &str, memory: i64, apps: &Value) -> Value {
    json!({"id": id, "stacks": ["cflinuxfs2"], "available_memory": memory, "available_disk": 40960,
           "app_id_to_count": apps, "placement_properties": {"zone": zone}})
}
