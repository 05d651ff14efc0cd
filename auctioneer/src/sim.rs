//! Only for the simulator: inputs with which a driver of virtual time replaces many single messages. An auctioneer on
//! NATS needs none of this.

use std::{collections::BTreeSet, sync::Arc};

use shared::{AuctionId, wire::Advert};

use crate::feed::ReportKind;

/// One input that summarises messages for a driver of virtual time.
#[derive(Clone, Debug)]
pub enum SimulatedInput {
    /// A cell report that was never serialised.
    Report {
        /// What the report is.
        kind: ReportKind,
        /// The report: the whole state of the cell.
        report: Arc<Advert>,
        /// The version since which the cell reports changes; none if it reports everything.
        since: Option<u64>,
    },
    /// Every known cell except these reported that its state is unchanged; replaces one bid or advertisement from each.
    /// The driver guarantees that the auctioneer knows the current version of each of them.
    Unchanged {
        /// The auction in which they bid; none if they advertised.
        auction: Option<AuctionId>,
        /// The cells that reported nothing, or something else.
        except: BTreeSet<Arc<str>>,
    },
}
