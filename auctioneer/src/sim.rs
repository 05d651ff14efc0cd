//! Only for the simulator: inputs that a driver of virtual time uses in place of many
//! single messages. The auctioneer under NATS needs none of this.

use std::{collections::BTreeSet, sync::Arc};

use shared::{AuctionId, wire::Advert};

use crate::feed::ReportKind;

/// One input, as a driver of virtual time summarises it.
#[derive(Clone, Debug)]
pub enum SimulatedInput {
    /// A cell report that was never serialised.
    Report {
        /// What the report is.
        kind: ReportKind,
        /// The report.
        report: Arc<Advert>,
    },
    /// Every known cell except these reported that its state did not change, in place of one bid
    /// or advertisement for each. The driver guarantees that the auctioneer knows the current
    /// version of each of them.
    Unchanged {
        /// The auction in which they bid; none = they advertised.
        auction: Option<AuctionId>,
        /// The cells that reported nothing, or something else.
        except: BTreeSet<Arc<str>>,
    },
}
