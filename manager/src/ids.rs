//! Ids: of a manager's starts, which cells show, and of things in its memory.

pub use shared::{AppUid, BucketId, WaveId};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    )*};
}

numbers! {
    /// One write to the bucket.
    WriteId;
    /// One question to the cells.
    QuestionId;
    /// Whom a command's answer is for; chosen by the driver.
    CommandKey;
}

/// An app in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AppId(pub(crate) u32);

/// A cell in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CellId(pub(crate) u32);
