//! All messages. docs/PROTOCOL.md has an example of each.

mod advert;
mod app;
mod cell;
mod change;
mod error;
mod event;
mod grant;
mod id_prefixes;
mod indices;
mod json;
mod query;
mod start;
mod stop;
mod task;

pub use advert::{
    Advert, Bid, BidRequest, CellReport, Envelope, LikelyVersion, likely_version, parse_cell,
};
pub use app::{
    AppAction, AppChanged, AppExport, AppHistory, AppImport, AppImportResult, AppImported, AppList,
    AppListed, AppLook, AppMove, AppMoved, AppPut, AppRestart, AppScale, AppShown, AppStatus,
    AppVersion, FieldChange, MoveState, Rollout,
};
pub use cell::{
    Acceptance, CellSet, CellSetAnswer, CellStart, Cordon, CordonAnswer, Drain, DrainAnswer,
    Instance, InstanceState, LogLine, Logs, LogsAnswer, Refusal, Work, reason,
};
pub use change::{Change, parse_change};
pub use error::{
    ErrorBody, WireError, check_version, code, parse, parse_strict, read, read_nothing,
    unknown_fields,
};
pub use event::{Event, EventInstance, kind, time_now};
pub use grant::{GrantAnswer, GrantAsk, GrantRequest};
pub use id_prefixes::{BadPrefixes, IdPrefixes, RunningIds};
pub use indices::{format_indices, parse_indices};
pub use query::{
    AddCells, AuctionRecord, CapacityAnswer, DecisionRecord, Expected, ExplainAnswer,
    ExplainRequest, Instances, InstancesAnswer, Page, PlaceAnswer, PlaceExtra, PoolAnswer,
    PoolCell, QueuedAnswer, QueuedGroup, QueuedRequest,
};
pub use start::{
    InstanceOutcome, Outcome, Parsed, StartBody, StartReplies, StartReply, instance_id, parse_start,
};
pub use stop::{Stop, StopAnswer, StopOutcome, StopReply, Stopped};
pub use task::{
    MAX_TASK_OUTPUT, TaskList, TaskListed, TaskResult, TaskShown, TaskState, TaskStatus,
    TaskStored, last_of_output,
};

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) fn is_false(b: &bool) -> bool {
    !*b
}

/// Most messages are shorter than this: they are written without reallocation.
const USUAL_BYTES: usize = 512;

/// Serialises a message. Wire structs contain only strings, numbers and lists, so this cannot fail.
pub fn to_bytes<T: serde::Serialize>(message: &T) -> bytes::Bytes {
    let mut writer = json::Writer {
        out: Vec::with_capacity(USUAL_BYTES),
    };
    if message.serialize(&mut writer).is_ok() {
        return writer.out.into();
    }
    // cases that the writer leaves to serde_json
    serde_json::to_vec(message)
        .map(Into::into)
        .unwrap_or_default()
}
