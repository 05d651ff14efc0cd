//! Lists of instances, which make up most of what a manager reads: with 250,000 instances, 25,000 of them a second.
//! Only the fields that the machine uses are read, without copying, and only instances of managers are kept.

use placement::Kind;
use serde::Deserialize;
use serde_json::value::RawValue;
use shared::{
    AttemptId, Incarnation, InstanceId, VERSION, Version, WaveId,
    wire::{Instance, InstanceState, InstancesAnswer, RunningIds, WireError, read},
};

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default, rename = "v")]
    _v: Version,
    cell: &'a str,
    incarnation: Incarnation,
    #[serde(default)]
    seq: u64,
    #[serde(default = "one")]
    part: u32,
    #[serde(default = "one")]
    parts: u32,
    #[serde(borrow)]
    instances: Vec<Listed<'a>>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
struct Listed<'a> {
    instance: InstanceId,
    index: u32,
    #[serde(default)]
    kind: Kind,
    request: Option<&'a str>,
    state: InstanceState,
    age_ms: u64,
    ready: Option<bool>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Verbatim, as it may be any text.
    #[serde(borrow)]
    ended: Option<&'a RawValue>,
}

/// Reads a list. Fields that the machine does not use are left empty.
pub(super) fn read_list(body: &[u8]) -> Result<InstancesAnswer, WireError> {
    let Ok(list) = serde_json::from_slice::<List<'_>>(body) else {
        // names with escapes cannot be borrowed, and errors have to name their field; both are rare
        let mut list: InstancesAnswer = read(body)?;
        list.instances.retain(is_managed);
        return Ok(list);
    };
    Ok(InstancesAnswer {
        v: VERSION,
        cell: list.cell.to_owned(),
        zone: String::new(),
        incarnation: list.incarnation,
        seq: list.seq,
        part: list.part,
        parts: list.parts,
        instances: list.instances.iter().filter_map(of_manager).collect(),
        ids: RunningIds::default(),
        more: list.part < list.parts,
    })
}

fn is_managed(instance: &Instance) -> bool {
    let request = instance.request.as_ref();
    request.is_some_and(|request| is_of_manager(request.as_str()))
}

fn is_of_manager(request: &str) -> bool {
    WaveId::parse(request).is_some() || AttemptId::parse(request).is_some()
}

fn of_manager(listed: &Listed<'_>) -> Option<Instance> {
    let request = listed.request.filter(|id| is_of_manager(id))?;
    let ended = listed.ended;
    let known = Instance::new(listed.instance, "", listed.index, listed.state);
    Some(Instance {
        kind: listed.kind,
        request: request.parse().ok(),
        age_ms: listed.age_ms,
        ready: listed.ready,
        ended: ended.and_then(|text| serde_json::from_str(text.get()).ok()),
        exit_code: listed.exit_code,
        signal: listed.signal,
        ..known
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"v":1,"cell":"c1","zone":"z1","incarnation":"018f0000-0000-4000-8000-000000000001","seq":42,"part":1,"parts":2,"instances":[
        {"instance":"3b2c0000-0000-5000-8000-000000000000","app":"web","index":7,"kind":"lrp","request":"m-0000000b-000000a1-3-17","state":"stopping",
         "age_ms":61000,"memory_mb":64,"disk_mb":64,"port":61003,"ready":false,"ended":"a \"quoted\" end"},
        {"instance":"77aa0000-0000-5000-8000-000000000000","app":"web","index":8,"request":"r-1","state":"running","age_ms":1,"memory_mb":1,"disk_mb":1},
        {"instance":"77aa0000-0000-5000-8000-000000000001","app":"web","index":9,"state":"running","age_ms":1,"memory_mb":1,"disk_mb":1}],"more":true}"#;

    #[test]
    fn what_the_machine_uses_is_as_in_the_whole_list() {
        let whole: InstancesAnswer = read(LIST.as_bytes()).unwrap();
        let list = read_list(LIST.as_bytes()).unwrap();
        assert_eq!(
            (&list.cell, list.incarnation),
            (&whole.cell, whole.incarnation)
        );
        let numbers = |list: &InstancesAnswer| (list.seq, list.part, list.parts, list.more);
        assert_eq!(numbers(&list), numbers(&whole));
        let [one] = list.instances.as_slice() else {
            panic!("{list:?}");
        };
        let used = |one: &Instance| {
            let Instance {
                instance,
                index,
                kind,
                request,
                state,
                age_ms,
                ready,
                ended,
                ..
            } = one.clone();
            (instance, index, kind, request, state, age_ms, ready, ended)
        };
        assert_eq!(used(one), used(&whole.instances[0]));
    }

    #[test]
    fn escapes_are_read_and_errors_name_the_field() {
        let escaped = LIST.replace("\"m-0000", r#""\u006d-0000"#);
        assert_eq!(read_list(escaped.as_bytes()).unwrap().instances.len(), 1);
        let error = read_list(LIST.replace("61000", "-1").as_bytes()).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("instances[0].age_ms"));
    }
}
