//! Arrays of starts through the machine, with real ledgers as cells and no NATS between: for
//! counting instructions (`valgrind --tool=callgrind`), which does not depend on the machine's load.
//!
//!     cargo run --release -p auctioneer --example load -- dea 1000 20

use std::{collections::BTreeMap, time::Instant};

use auctioneer::{Auctioneer, Input, Output, Settings, door, feed::Word};
use placement::{Cell, Policy, Request, Resources, Span};
use rep::ledger::Ledger;
use shared::wire::{Advert, CellStart, to_bytes};
use uuid::Uuid;

fn main() {
    let mut args = std::env::args().skip(1);
    let policy = args.next().unwrap_or_else(|| "dea".into());
    let mut number = |default| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (cells, arrays): (usize, usize) = (number(1_000), number(20));
    let policy = Policy::preset(&policy).expect("a preset's name");
    let mut machine = Auctioneer::new(Settings {
        name: "load".into(),
        policy: policy.clone(),
        max_payload: 1 << 20,
        seed: 1,
        wall_start_ms: 0,
    });
    let mut reps: BTreeMap<String, Ledger> = BTreeMap::new();
    for n in 0..cells {
        let mut cell = Cell::new(format!("cell-{n}"), Resources::new(65_536, 131_072, 4_096));
        cell.zone = format!("z{}", n % 4);
        let incarnation = Uuid::from_u128(n as u128 + 1);
        reps.insert(cell.cell.clone(), Ledger::new(cell, incarnation, "host"));
    }
    let mut now_ms = 1;
    for rep in reps.values() {
        hear(&mut machine, now_ms, rep, Word::Advert, None);
    }
    machine.warmed_up();
    let (mut accepted, mut starts) = (0, 0);
    let began = Instant::now();
    for array in 0..arrays {
        let request = |n| Request::new(format!("app-{array}-{n}"), 8, 8);
        let body = to_bytes(&(0..1_000).map(request).collect::<Vec<_>>());
        let key = Some(array as u64);
        let mut ids = 0u128;
        let input = door::read_start(&policy, &body, key, || {
            ids += 1;
            Uuid::from_u128((array as u128) << 64 | ids)
        });
        machine.take(now_ms, input);
        if array % 4 == 3 {
            let mut todo = machine.run(now_ms);
            while let Some(output) = todo.pop() {
                match output {
                    Output::AskBids { auction } => {
                        for rep in reps.values() {
                            hear(&mut machine, now_ms, rep, Word::Bid, Some(auction));
                        }
                        todo.extend(machine.run(now_ms));
                    }
                    Output::Start {
                        dispatch,
                        cell,
                        body,
                    } => {
                        starts += 1;
                        let start: CellStart = serde_json::from_slice(&body).expect("ours");
                        let rep = reps.get_mut(cell.as_ref()).expect("a cell");
                        let answer = rep.start(now_ms, &start);
                        rep.take_actions();
                        accepted += answer.accepted.len();
                        let body = to_bytes(&answer);
                        let answer = Box::new(serde_json::from_slice(&body).expect("ours"));
                        machine.take(now_ms, Input::Answered { dispatch, answer });
                        todo.extend(machine.run(now_ms));
                    }
                    Output::Event(event) => drop(to_bytes(&*event)),
                    _ => {}
                }
            }
            now_ms += 100;
            for rep in reps.values() {
                hear(&mut machine, now_ms, rep, Word::Advert, None);
            }
        }
    }
    let took = began.elapsed();
    println!("{accepted} accepted, {starts} messages to cells, {took:?}");
}

fn hear(machine: &mut Auctioneer, now_ms: u64, rep: &Ledger, word: Word, auction: Option<Uuid>) {
    let body = to_bytes(&Advert {
        v: 1,
        auction,
        incarnation: rep.incarnation(),
        seq: rep.seq(),
        clock_ms: now_ms,
        ttl: Span(std::time::Duration::from_secs(15)),
        recent: rep.recent(now_ms),
        cell: rep.cell().clone(),
    });
    let subject_cell = Some(rep.cell().cell.clone());
    machine.take(
        now_ms,
        Input::Heard {
            word,
            subject_cell,
            body,
        },
    );
}
