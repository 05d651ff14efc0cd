//! Answers about one app or stored request. Former versions and outputs are read from the bucket.

use bytes::Bytes;
use placement::Invalid;
use serde_json::Value;
use shared::{
    BucketId, VERSION,
    wire::{
        AppExport, AppHistory, AppShown, AppStatus, AppVersion, TaskShown, TaskStatus, WireError,
        code, to_bytes,
    },
};

use super::{Shell, requests::Look, service::ReplyTo};
use crate::{
    definition::AppDefinition,
    differences::Differences,
    stored::{AppRecord, HISTORY, HistoryRecord, StoredKey},
};

/// What was known of a stored request when the question arrived.
pub(super) struct TaskView {
    pub(super) to: ReplyTo,
    /// Whether its output is wanted.
    pub(super) output: bool,
    pub(super) acting: bool,
    pub(super) task: TaskStatus,
}

impl TaskView {
    /// Returns the body of the answer.
    pub(super) async fn body(&self, shell: &Shell) -> Result<Bytes, WireError> {
        let mut output = None;
        if self.output {
            let read = shell.store.task(&self.task.id).await;
            let read = read.map_err(|error| WireError::new(code::INTERNAL, error.to_string()))?;
            let end = read.and_then(|record| record.end);
            output = end.and_then(|end| end.output);
        }
        Ok(to_bytes(&TaskShown {
            v: VERSION,
            manager: shell.name.to_string(),
            acting: self.acting,
            task: self.task.clone(),
            output,
        }))
    }
}

/// What was known of an app when the question arrived.
pub(super) struct View {
    pub(super) look: Look,
    pub(super) to: ReplyTo,
    pub(super) status: AppStatus,
    pub(super) record: AppRecord,
    pub(super) bucket: Option<BucketId>,
    pub(super) acting: bool,
}

impl View {
    /// Returns the body of the answer.
    pub(super) async fn body(&self, shell: &Shell) -> Result<Bytes, WireError> {
        let body = match self.look {
            Look::Show(version) => {
                let (version, definition) = self.definition(shell, version).await?;
                to_bytes(&AppShown {
                    v: VERSION,
                    manager: shell.name.to_string(),
                    acting: self.acting,
                    status: self.status.clone(),
                    version,
                    definition: Value::Object(definition.shown()),
                })
            }
            Look::Export(version) => {
                let (version, definition) = self.definition(shell, version).await?;
                to_bytes(&AppExport {
                    v: VERSION,
                    bucket: self.bucket.map(|bucket| bucket.to_string()),
                    uid: Some(self.record.uid.to_string()),
                    version: Some(version),
                    stopped: self.record.stopped,
                    definition: Value::Object(definition.written()),
                })
            }
            Look::History => to_bytes(&self.history(shell).await?),
        };
        let most = shell.max_payload();
        if body.len() > most {
            let message = format!("an answer of {} bytes; max_payload is {most}", body.len());
            return Err(WireError::new(code::OVERLOADED, message));
        }
        Ok(body)
    }

    async fn definition(
        &self,
        shell: &Shell,
        version: Option<u32>,
    ) -> Result<(u32, AppDefinition), WireError> {
        let version = version.unwrap_or(self.record.version);
        if version == self.record.version {
            return Ok((version, self.record.definition.clone()));
        }
        if let Some((record, _)) = self.stored(shell, version).await? {
            return Ok((version, record.definition));
        }
        let expected = format!("one of the last {HISTORY} versions");
        let invalid = Invalid::new("version", version, expected);
        Err(WireError {
            code: code::NOT_FOUND.into(),
            ..WireError::from(invalid)
        })
    }

    async fn stored(
        &self,
        shell: &Shell,
        version: u32,
    ) -> Result<Option<(HistoryRecord, String)>, WireError> {
        let key = StoredKey::History(self.record.uid, version);
        let read = shell.store.version(&key).await;
        read.map_err(|error| WireError::new(code::INTERNAL, error.to_string()))
    }

    async fn history(&self, shell: &Shell) -> Result<AppHistory, WireError> {
        let last = self.record.version;
        let undo = self.record.before.as_ref().map(|before| before.version);
        let mut found = Vec::new();
        for version in (last.saturating_sub(HISTORY) + 1..=last).rev() {
            if let Some((record, time)) = self.stored(shell, version).await? {
                found.push((version, record.definition, time));
            }
        }
        let mut versions = Vec::new();
        for (at, (version, definition, time)) in found.iter().enumerate() {
            let older = found.get(at + 1).map(|(_, definition, _)| definition);
            let differences = older.map_or_else(Differences::default, |older| {
                Differences::of_definitions(older, definition)
            });
            versions.push(AppVersion {
                version: *version,
                current: *version == last,
                undo: Some(*version) == undo,
                time: Some(time.clone()),
                changes: differences.changes,
                more: differences.more,
            });
        }
        Ok(AppHistory {
            v: VERSION,
            manager: shell.name.to_string(),
            app: self.status.app.clone(),
            uid: self.record.uid.to_string(),
            versions,
        })
    }
}
