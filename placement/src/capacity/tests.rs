use super::*;
use crate::{Resources, Span, resources::Resource};

fn cell(name: &str, zone: &str, memory: i64) -> Cell {
    let mut cell = Cell::new(name, Resources::new(memory, 100_000, 1_000));
    cell.attributes_mut().zone = zone.into();
    cell
}

fn pool(cells: impl IntoIterator<Item = Cell>) -> Pool {
    let mut pool = Pool::default();
    cells.into_iter().for_each(|cell| pool.put(cell));
    pool
}

fn diego() -> Policy {
    Policy::preset("diego").unwrap()
}

fn policy(filters: &[&str]) -> Policy {
    let mut text = String::from("name = \"t\"\n");
    for filter in filters {
        text += "[[stage]]\nfilter = ";
        text += filter;
        text += "\n";
    }
    text += "[[stage]]\npick = \"sample\"";
    Policy::parse(&text).unwrap()
}

/// Returns how many fit on one cell.
fn room_on(cell: Cell, request: &Request, policy: &Policy) -> u64 {
    let capacity = pool([cell]).capacity(request, policy, &PlanContext::default());
    capacity.fits
}

#[test]
fn each_zone_says_how_many_fit_on_how_many_cells() {
    let pool = pool([
        cell("a", "z1", 1000),
        cell("b", "z1", 250),
        cell("c", "z1", 99),
        cell("d", "z2", 99),
        cell("e", "z3", 1000),
        cell("f", "z3", 1000),
    ]);
    let context = PlanContext {
        absent: ["e".into()].into(),
        expired: ["f".into()].into(),
        ..PlanContext::default()
    };
    let capacity = pool.capacity(&Request::new("x", 100, 1), &diego(), &context);
    let zone = |fits, cells, most_on_a_cell| ZoneCapacity {
        fits,
        cells,
        most_on_a_cell,
    };
    let zones = [("z1", zone(12, 2, 10)), ("z2", zone(0, 0, 0))];
    let expected = Capacity {
        fits: 12,
        zones: zones.map(|(name, zone)| (name.to_owned(), zone)).into(),
        ..Capacity::default()
    };
    assert_eq!(capacity, expected);
    assert_eq!(
        capacity.to_string(),
        "12 more fit\n  z1: 12 on 2 cells, at most 10 on one\n  z2: 0 on 0 cells, at most 0 on one\n"
    );
}

/// The filter that admits the fewest to a cell decides.
#[test]
fn the_scarcest_of_what_the_policy_holds_is_the_room() {
    let mut free = cell("a", "z", 1000);
    free.available = Resources {
        memory_mb: 800,
        disk_mb: Some(700),
        containers: Some(60),
        cpu_millis: 500,
        extra: [("gpu".to_owned(), 4), ("seat".to_owned(), 9)].into(),
        ..Resources::default()
    };
    free.counts.apps.insert("y".into(), 5);
    free.counts.tasks = 2;
    let request = Request {
        cpu_millis: 10,
        extra: [("gpu".to_owned(), 2), ("seat".to_owned(), 3)].into(),
        ..Request::new("x", 10, 10)
    };
    for (filters, room) in [
        (&["\"memory\""][..], 80),
        (&["\"memory\"", "\"disk\""], 70),
        (&["\"disk\"", "\"containers\"", "\"memory\""], 60),
        (&["\"cpu\""], 50),
        (&["\"cpu\"", "\"extra\""], 2),
        (&["\"container-count\"\nlimit = 20"], 13),
        (&["\"evacuating\""], u64::from(MAX_INSTANCES)),
    ] {
        let fits = room_on(free.clone(), &request, &policy(filters));
        assert_eq!(fits, room, "{filters:?}");
    }
    // what is not asked for limits nothing
    let nothing = Request::new("x", 0, 0);
    let all = ["\"memory\"", "\"disk\"", "\"cpu\"", "\"extra\""];
    let fits = room_on(free, &nothing, &policy(&all));
    assert_eq!(fits, u64::from(MAX_INSTANCES));
}

/// The first instance may exclude the next ones.
#[test]
fn one_fits_where_it_keeps_its_own_kind_away() {
    let far = Request {
        far: vec!["app:x".into()],
        strict: true,
        ..Request::new("x", 10, 10)
    };
    let dapi = Policy::preset("dapi").unwrap();
    assert_eq!(room_on(cell("a", "z", 1000), &far, &dapi), 1);
    let strict = false;
    let preferred = Request { strict, ..far };
    assert_eq!(room_on(cell("a", "z", 1000), &preferred, &dapi), 100);
}

/// The limit is temporary, the lack of memory is not.
#[test]
fn the_reason_is_what_cells_lack_even_where_as_many_starts_as_allowed_are_in_flight() {
    let mut busy = cell("a", "z", 100);
    busy.counts.starting = 1;
    let limited = Policy::parse("preset = \"diego\"\nmax_in_flight = 1").unwrap();
    let request = Request::new("x", 101, 1);
    let capacity = pool([busy]).capacity(&request, &limited, &PlanContext::default());
    assert_eq!(
        capacity.to_string(),
        "0 more fit\n  z: 0 on 0 cells, at most 0 on one\n  insufficient resources: memory\n    \
         memory: 1 cell dropped, needs 101, the best has 100\n"
    );
}

#[test]
fn new_cells_are_the_last_of_their_zone_and_take_free_names() {
    let numbered = |name: &str, zone: &str, index| {
        let mut cell = cell(name, zone, 1000);
        cell.index = index;
        cell
    };
    let mut pool = pool([
        numbered("a", "z1", 3),
        numbered("b", "z1", 5),
        numbered("a-new-2", "z2", 9),
    ]);
    let names = pool.add_like("a", 3).unwrap();
    assert_eq!(names, ["a-new-1", "a-new-3", "a-new-4"]);
    let indices = names.iter().map(|name| pool.get(name).unwrap().index);
    assert_eq!(indices.collect::<Vec<_>>(), [6, 7, 8]);
}

#[test]
fn of_a_long_name_only_the_beginning_stands_in_the_name_of_a_cell_like_it() {
    let long = "n".repeat(128);
    let names = pool([cell(&long, "z", 1000)]).add_like(&long, 1).unwrap();
    assert_eq!(names, [format!("{}-new-1", "n".repeat(MAX_STEM))]);
}

#[test]
fn a_cell_like_another_has_all_that_it_has_and_nothing_that_work_brought() {
    let mut empty = cell("a", "z", 1000);
    empty.attributes_mut().rack = Some("r1".into());
    let mut full = empty.clone();
    let web = Request {
        cpu_millis: 100,
        owner: Some("acme".into()),
        tags: [("role".to_owned(), "db".to_owned())].into(),
        ..Request::new("web", 10, 10)
    };
    full.debit(&web, None);
    let task = Request {
        kind: crate::Kind::Task,
        ..Request::new("job", 10, 10)
    };
    full.debit(&task, None);
    full.evacuating = true;
    full.recent_starts.push(crate::RecentStart {
        age: Span::default(),
        failed: true,
    });
    full.attributes_mut().volumes = vec!["v".into()];
    full.attributes_mut().cached_blobs = vec!["b".into()];
    assert_ne!(full.available.get(Resource::Memory), Some(1000));
    assert_eq!(emptied(&full), empty);
}
