use std::time::Duration;

use placement::Request;
use shared::{
    AuctionId,
    clock::CellTime,
    wire::{CellStart, reason, to_bytes},
};

use super::*;

const LIFE: Incarnation = Incarnation::from_u128(77);
const TTL: Duration = Duration::from_secs(15);

fn cell(name: &str) -> SimCell {
    let cell = placement::Cell::new(name, placement::Resources::new(100, 100, 100));
    let mut cell = SimCell::new(cell, Cadence::default(), Span::default(), 1);
    cell.begin(0, LIFE, &[], &mut 0);
    cell
}

/// Returns when a cell advertised, how many instances of `web` it had, and how long that is valid.
fn adverts_of(now_ms: u64, published: Vec<Publication>) -> Vec<(u64, u32, Duration)> {
    let advert = |publication| match publication {
        Publication::Advert(advert, _) => Some((now_ms, advert.cell.count_of("web"), advert.ttl.0)),
        Publication::Event(_) => None,
    };
    published.into_iter().filter_map(advert).collect()
}

/// Steps a cell from timer to timer; returns its advertisements with news.
fn live(cell: &mut SimCell, until_ms: u64) -> Vec<(u64, u32, Duration)> {
    let mut adverts = Vec::new();
    loop {
        let now_ms = cell.next_ms(true);
        if now_ms > until_ms {
            return adverts;
        }
        adverts.extend(adverts_of(now_ms, cell.take(now_ms, true, CellInput::Tick)));
    }
}

fn start(cell: &mut SimCell, now_ms: u64, app: &str) -> Acceptance {
    let job = Job {
        request: Arc::new(Request::new(app, 10, 10)),
        index: 0,
    };
    let mut available = cell.ledger().cell().available.clone();
    let body = to_bytes(&CellStart {
        v: shared::VERSION,
        auction: AuctionId::nil(),
        incarnation: LIFE,
        expires_ms: CellTime::from_ms(now_ms + 5_000),
        work: vec![before(&job, &mut u64::from(app == "web"), &mut available)],
    });
    cell.start(now_ms, &body).unwrap()
}

#[test]
fn aggregated_bids_have_the_size_of_simulated_bids() {
    for (name, now_ms) in [("a", 9), ("z1-cell-12", 123_456), ("z", 99_999_999)] {
        let cell = cell(name);
        let bid = cell.machine().unchanged(now_ms, AuctionId::from_u128(5));
        assert_eq!(to_bytes(&bid).len() as u64, cell.unchanged_bytes(now_ms));
    }
}

#[test]
fn a_cell_drains_in_virtual_time_as_the_rep_does() {
    let mut cell = cell("a");
    assert_eq!(live(&mut cell, 100), [(0, 0, TTL)]);
    assert_eq!(start(&mut cell, 1_000, "web").accepted.len(), 1);
    let published = cell.take(1_000, true, CellInput::Tick);
    assert_eq!(adverts_of(1_000, published), [(1_000, 1, TTL)]);
    let answer = cell.machine.drain(2_000, br#"{"deadline":"20s"}"#).unwrap();
    assert_eq!(answer.instances, 1);
    let published = cell.settle(2_000);
    assert_eq!(adverts_of(2_000, published), [(2_000, 1, TTL)], "at once");
    let refused = start(&mut cell, 3_000, "other").refused;
    assert_eq!(refused[0].reason, reason::DRAINING);
    // instances end at the deadline, and that is advertised too
    assert_eq!(live(&mut cell, 60_000), [(22_000, 0, TTL)]);
    assert!(cell.ledger().is_drained());
}

#[test]
fn a_cell_that_leaves_withdraws_and_is_silent() {
    let mut cell = cell("a");
    live(&mut cell, 100);
    start(&mut cell, 1_000, "web");
    cell.take(1_000, true, CellInput::Tick);
    let published = cell.take(2_000, true, CellInput::Leave);
    let withdrawal = [(2_000, 1, Duration::ZERO)];
    assert_eq!(adverts_of(2_000, published), withdrawal, "valid no longer");
    assert!(live(&mut cell, 600_000).is_empty());
    assert!(cell.ledger().is_drained());
    assert_eq!(cell.machine().bid(3_000, AuctionId::nil()), None);
}

#[test]
fn a_cell_that_is_cut_off_bids_with_its_whole_state() {
    let mut cell = cell("a");
    cell.cut = 1;
    live(&mut cell, 100);
    assert!(!cell.machine().is_advertised());
    cell.cut = 0;
    cell.take(200, true, CellInput::Reconnected);
    assert!(cell.machine().is_advertised());
}
