//! What the connections of a cluster are for.

/// What a connection is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A cell agent, by the name of its cell.
    Cell,
    /// An auctioneer, by its name.
    Auctioneer,
    /// A manager, by its name.
    Manager,
    /// A manager's second connection, to the account that keeps what it stores.
    #[serde(rename = "manager-state")]
    ManagerState,
    /// Makes cells of DEAs, by its name; its cells are `NAME-0`, `NAME-1` and so on.
    Bridge,
    /// Makes DEAs of some cells, by its name.
    Facade,
    /// Starts, stops and looks at work.
    User,
    /// A user who also changes and drains cells.
    Operator,
    /// Hears events and what cells advertise; publishes nothing.
    Observer,
    /// Reads counters.
    Metrics,
    /// Records a cluster's requests as a scenario.
    Recorder,
}
