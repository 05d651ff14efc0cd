//! Numbers that identify what the auctioneer has in progress, each a type of its own so that they cannot be confused.
//! They mean nothing to other processes.

use std::{fmt, str::FromStr};

macro_rules! number_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The id with this number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, std::num::ParseIntError> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

number_ids! {
    /// An open start request.
    TicketId;
    /// A message with one or more start requests, until its reply.
    GroupId;
    /// A start message that awaits a cell's answer.
    DispatchId;
    /// A request to all cells for their instances.
    LookupId;
    /// A stop that waits for the cells' answers.
    StopId;
    /// A message to the auctioneer that waits for its reply; the driver knows the reply subject.
    ReplyKey;
    /// One run of an auctioneer, as its echoes say; random.
    EchoToken;
    /// How often the pool has changed so that waiting work may fit.
    PoolVersion;
}

impl LookupId {
    /// The question that compares what all cells run.
    pub const COMPARISON: Self = Self::new(0);
}

impl StopId {
    /// A stop whose answer nobody waits for.
    pub const NOBODYS: Self = Self::new(0);
}
