//! The purposes of the connections of a cluster.

/// The purpose of a connection.
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
    /// A manager's second connection, to the account of its storage.
    #[serde(rename = "manager-state")]
    ManagerState,
    /// Turns DEAs into cells, by its name; its cells are `NAME-0`, `NAME-1` and so on.
    Bridge,
    /// Turns some cells into DEAs, by its name.
    Facade,
    /// Starts, stops and observes work.
    User,
    /// A user who also changes and drains cells.
    Operator,
    /// Hears events and cells' advertisements; publishes nothing.
    Observer,
    /// Reads counters.
    Metrics,
    /// Records a cluster's requests as a scenario.
    Recorder,
}
