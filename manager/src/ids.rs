//! Ids of a manager's starts, as cells show them, and of things in its memory.

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

/// The revision of a key in a bucket: the number of the write that gave it its present value. It grows with every write
/// to the bucket, including deletions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a key that was never written.
    pub const NONE: Self = Self(0);
}

/// An app in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AppId(pub(crate) u32);

/// A cell in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CellId(pub(crate) u32);
