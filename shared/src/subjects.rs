//! Every subject, under one prefix.

use placement::Invalid;

/// The subjects of one cluster. The default prefix is `vendue`; with different prefixes several
/// clusters share a NATS account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    prefix: String,
}

/// Accepts a valid prefix of subjects: 1 to 64 of `A-Za-z0-9_-`, in tokens separated by dots.
pub fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    let tokens = prefix.split('.');
    if prefix.len() <= 64
        && tokens
            .into_iter()
            .all(|t| placement::check_name("prefix", t).is_ok())
    {
        return Ok(());
    }
    let expected = "at most 64 of A-Z a-z 0-9 _ - in tokens separated by dots";
    Err(Invalid::new("prefix", format!("{prefix:?}"), expected))
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl Subjects {
            $($(#[$doc])* pub fn $name(&self) -> String {
                format!(concat!("{}.", $text), self.prefix)
            })*
        }
    };
}

fixed! {
    /// A start request, or an array of them → one auctioneer.
    start = "start";
    /// A dry run → one auctioneer.
    place = "place";
    /// The last decisions for an app → one auctioneer.
    explain = "explain";
    /// How many more of a size fit → one auctioneer.
    capacity = "capacity";
    /// Stop an app or some of its instances → one auctioneer.
    stop = "stop";
    /// The cells as an auctioneer sees them, paged.
    pool = "pool";
    /// Anyone → every auctioneer: the queued work.
    queued = "queued";
    /// Anyone → every cell: advertise.
    discover = "discover";
    /// Auctioneer → every cell: bid.
    bid = "bid";
    /// Anyone → every cell: its instances.
    instances = "instances";
    /// Auctioneer → every cell: stop what matches.
    cells_stop = "cells.stop";
    /// Every cell's advertisements.
    adverts = "cell.*.advert";
    /// Every event.
    events = "event.>";
    /// Every request's outcome.
    outcomes = "outcome.*";
}

impl Subjects {
    /// The subjects under this prefix.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Invalid> {
        let prefix = prefix.into();
        check_prefix(&prefix)?;
        Ok(Self { prefix })
    }

    /// The prefix itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A subject of one cell: `advert`, `start`, `stop`, `drain`, `set`, `state`, `logs` or
    /// `heartbeat`.
    pub fn cell(&self, cell: &str, what: &str) -> String {
        format!("{}.cell.{cell}.{what}", self.prefix)
    }

    /// The cell that an advertisement's subject names.
    pub fn cell_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".cell.")?;
        rest.split_once('.').map(|(cell, _)| cell)
    }

    /// An event about an app or a cell.
    pub fn event(&self, kind: &str, about: &str) -> String {
        format!("{}.event.{kind}.{about}", self.prefix)
    }

    /// The whole answer to a request.
    pub fn outcome(&self, request_id: &str) -> String {
        format!("{}.outcome.{request_id}", self.prefix)
    }

    /// An instance's output; `index` may be `*`.
    pub fn log(&self, app: &str, index: &str) -> String {
        format!("{}.log.{app}.{index}", self.prefix)
    }

    /// An auctioneer's echo to itself: evidence that messages flow.
    pub fn echo(&self, auctioneer: &str) -> String {
        format!("{}.echo.{auctioneer}", self.prefix)
    }
}
