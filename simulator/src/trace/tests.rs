mod synthetic;

use super::*;
use synthetic::Synthetic;

const NODES: &str = "\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,64000,262144,2,P100
openb-node-0001,96000,393216,8,V100M16
openb-node-0002,94000,262144,0,
";
const PODS: &str = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0
openb-pod-2449,4000,15258,1,50,P100,BE,Running,10907668,10950678,10907676
openb-pod-0003,6000,4096,0,0,V100M32|A10|G2|T4|V100M16,LS,Running,10265011,10274316,10265045
openb-pod-0004,32200,132096,4,1000,,LS,Failed,10814729,,
";

fn source<'a>(name: &'a str, text: &'a str) -> Source<'a, &'a [u8]> {
    Source {
        name,
        text: text.as_bytes(),
    }
}

fn trace(nodes: &str, pods: &str, columns: &str) -> Result<Trace, String> {
    let columns = columns.parse::<Columns>().map_err(|e| e.to_string())?;
    let (nodes, pods) = (source("nodes.csv", nodes), source("pods.csv", pods));
    read(nodes, pods, &columns, Kind::Lrp, true).map_err(|e| chain(&e))
}

/// Returns the error with its causes, as the command line prints it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn starts(trace: &Trace) -> Vec<(u64, Request, Option<u64>)> {
    let start = |demand: &Demand| match &demand.action {
        DemandAction::Start {
            request,
            lifetime_ms,
        } => (demand.at_ms, (**request).clone(), *lifetime_ms),
        DemandAction::Stop { .. } => panic!("a trace stops nothing"),
    };
    trace.demands.iter().map(start).collect()
}

fn gpus(count: u32, model: &str) -> DeviceSet {
    DeviceSet {
        model: Some(model.into()),
        ..DeviceSet::new(count, 1000)
    }
}

fn need(count: u32, amount: i64, models: &[&str]) -> DeviceNeed {
    DeviceNeed {
        models: models.iter().map(|m| (*m).to_owned()).collect(),
        ..DeviceNeed::new(count, Some(amount))
    }
}

#[test]
fn nodes_are_cells() {
    let trace = trace(NODES, PODS, "").unwrap();
    let [first, second, third] = &trace.cells[..] else {
        panic!("three cells");
    };
    let mut total = Resources {
        memory_mb: 262_144,
        cpu_millis: 64_000,
        ..Resources::default()
    };
    total.devices.insert("gpu".into(), gpus(2, "P100"));
    assert_eq!(*first, Cell::new("openb-node-0000", total));
    assert_eq!(second.total.devices[GPU], gpus(8, "V100M16"));
    assert!(third.total.devices.is_empty() && third.index == 2);
    assert_eq!(third.zone, "default");
    for cell in &trace.cells {
        cell.check().unwrap();
    }
}

#[test]
fn pods_are_timed_starts() {
    let starts = starts(&trace(NODES, PODS, "").unwrap());
    let times: Vec<_> = starts
        .iter()
        .map(|(at, request, life)| (request.app.as_str(), *at, *life))
        .collect();
    let expected = [
        ("openb-pod-0000", 0, Some(12_537_496_000)),
        ("openb-pod-0003", 10_265_011_000, Some(9_305_000)),
        ("openb-pod-0004", 10_814_729_000, None),
        ("openb-pod-2449", 10_907_668_000, Some(43_010_000)),
    ];
    assert_eq!(times, expected);
    let gpus: Vec<_> = starts
        .iter()
        .map(|(_, r, _)| r.devices.get(GPU).cloned())
        .collect();
    let expected = [
        Some(need(1, 1000, &[])),
        None,
        Some(need(4, 1000, &[])),
        Some(need(1, 50, &["P100"])),
    ];
    assert_eq!(gpus, expected);
    for (_, request, _) in &starts {
        request.check().unwrap();
        assert_eq!(request.id, request.app);
    }
    let mut first = Request::new("openb-pod-0000", 16_384, 0);
    first.id = "openb-pod-0000".into();
    first.cpu_millis = 12_000;
    first.devices.insert(GPU.into(), need(1, 1000, &[]));
    assert_eq!(starts[0].1, first);
}

#[test]
fn a_model_is_honoured_by_every_policy() {
    let pods = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time
a,1,1,1,50,V100M32|V100M16,1,
b,1,1,1,50,P100,2,
";
    let trace = trace(NODES, pods, "").unwrap();
    for policy in ["diego", "dea", "objective", "random", "dapi"] {
        let policy = placement::Policy::from_json(&policy.into()).unwrap();
        let mut pool = placement::Pool::default();
        for cell in &trace.cells {
            pool.put(cell.clone());
        }
        let requests = trace
            .demands
            .iter()
            .filter_map(|demand| match &demand.action {
                DemandAction::Start { request, .. } => Some(request),
                DemandAction::Stop { .. } => None,
            });
        let jobs: Vec<_> = requests.flat_map(Request::jobs).collect();
        let mut plan = pool.plan(&jobs, &policy, &placement::PlanContext::default());
        plan.decisions.sort_by_key(|decision| decision.job);
        let cells: Vec<_> = plan
            .decisions
            .iter()
            .map(|d| match &d.verdict {
                placement::Verdict::Placed { cell } => Some(cell.to_string()),
                _ => None,
            })
            .collect();
        let expected = ["openb-node-0001", "openb-node-0000"].map(|c| Some(c.to_owned()));
        assert_eq!(cells, expected);
    }
}

#[test]
fn columns_may_have_other_names_and_stand_anywhere() {
    let nodes = "rack,mem,host,cores,disk\nr1,1024,a,4000,99\nr2,2048,b,8000,\n";
    let pods = "end,begin,mem,cores,job\n9.5,7.25,10.0,5,x\n,100,20,6,y\n";
    let columns = "cpu_milli=cores, memory_mib=mem, sn=host, name=job, zone=rack,\
                   nodes.disk_mib=disk, creation_time=begin, deletion_time=end";
    let trace = trace(nodes, pods, columns).unwrap();
    let cells: Vec<_> = trace
        .cells
        .iter()
        .map(|c| {
            (
                c.cell.as_str(),
                c.zone.as_str(),
                c.total.memory_mb,
                c.total.disk_mb,
            )
        })
        .collect();
    assert_eq!(
        cells,
        [("a", "r1", 1024, Some(99)), ("b", "r2", 2048, None)]
    );
    let starts = starts(&trace);
    let times: Vec<_> = starts
        .iter()
        .map(|(at, r, life)| (*at, r.memory_mb, *life))
        .collect();
    // times count from the first pod
    assert_eq!(times, [(0, 10, Some(2_250)), (92_750, 20, None)]);
}

#[test]
fn errors_name_file_line_column_value_and_expectation() {
    let second = |line: &str| format!("sn,cpu_milli,memory_mib,gpu,model\nok,1,1,0,\n{line}\n");
    for (line, parts) in [
        ("a b,1,1,0,", ["line 3, column \"sn\": \"a b\"", "A-Z"]),
        (
            "ok,1,1,0,",
            ["line 3, column \"sn\": \"ok\"", "each name once"],
        ),
        (
            "b,x,1,0,",
            [
                "line 3, column \"cpu_milli\": \"x\"",
                "an integer from 0 to 2147483647",
            ],
        ),
        (
            "b,,1,0,",
            ["line 3, column \"cpu_milli\": \"\"", "an integer"],
        ),
        ("b,1,-1,0,", ["column \"memory_mib\": \"-1\"", "an integer"]),
        (
            "b,1,1.5,0,",
            ["column \"memory_mib\": \"1.5\"", "an integer"],
        ),
        (
            "b,1,1,9999999,",
            ["column \"gpu\": \"9999999\"", "from 0 to 256"],
        ),
        (
            "b,1,1",
            ["nodes.csv: not readable as CSV: CSV error", "line: 3"],
        ),
    ] {
        let error = trace(&second(line), PODS, "").unwrap_err();
        assert!(error.starts_with("nodes.csv: "), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn errors_in_pods_and_columns_are_named_too() {
    let pod = |line: &str| format!("{}\n{line}\n", PODS.lines().next().unwrap());
    for (line, parts) in [
        (
            "p,1,1,0,0,,LS,R,,5,",
            ["line 2, column \"creation_time\": \"\"", "seconds"],
        ),
        (
            "p,1,1,0,0,,LS,R,soon,5,",
            ["column \"creation_time\": \"soon\"", "seconds"],
        ),
        (
            "p,1,1,0,0,,LS,R,6,5,",
            ["column \"deletion_time\": \"5\"", "not before the creation"],
        ),
        (
            "p,1,1,1,1001,,LS,R,1,5,",
            ["column \"gpu_milli\": \"1001\"", "from 0 to 1000"],
        ),
    ] {
        let error = trace(NODES, &pod(line), "").unwrap_err();
        assert!(error.starts_with("pods.csv: "), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let error = trace("sn,cpu\na,1\n", PODS, "").unwrap_err();
    let expected =
        "nodes.csv: column \"cpu_milli\" (for cpu_milli) is missing; the columns are sn, cpu";
    assert_eq!(error, expected);
    let error = trace(NODES, PODS, "zone=rack").unwrap_err();
    assert!(
        error.contains("column \"rack\" (for zone) is missing"),
        "{error}"
    );
    for columns in ["cpu", "cpu=", "cpus=x", "pods.zone=x", "node.sn=x"] {
        let error = trace(NODES, PODS, columns).unwrap_err();
        assert!(
            error.starts_with(&format!("columns: {columns:?}")),
            "{error}"
        );
    }
}

#[test]
fn a_made_up_trace_has_its_size_and_is_readable() {
    let made = Synthetic::default();
    let trace = trace(&made.nodes_csv(), &made.pods_csv(), "").unwrap();
    assert_eq!((trace.cells.len(), trace.demands.len()), (1_500, 8_000));
    assert_eq!(made.pods_csv(), made.pods_csv());
    let starts = starts(&trace);
    let last_day = starts.last().unwrap().0 / 86_400_000;
    assert!((148..150).contains(&last_day), "{last_day}");
    // gpus are requested, also in fractions, and at any time there is room for most of them
    let gpu = |request: &Request| {
        let need = request.devices.get(GPU);
        need.map_or(0, |need| i64::from(need.count) * need.amount.unwrap())
    };
    let fractions = starts.iter().filter(|(_, r, _)| gpu(r) % 1000 != 0).count();
    assert!((1_800..3_000).contains(&fractions), "{fractions}");
    let sets = trace.cells.iter().filter_map(|c| c.total.devices.get(GPU));
    let has: i64 = sets.map(DeviceSet::sum_free).sum();
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (at_ms, request, life) in &starts {
        changes.push((*at_ms, gpu(request)));
        changes.push((at_ms + life.unwrap(), -gpu(request)));
    }
    changes.sort_unstable();
    let mut used = 0;
    let most = changes
        .iter()
        .map(|(_, by)| {
            used += by;
            used
        })
        .max()
        .unwrap();
    let share = most as f64 / has as f64;
    assert!((0.3..0.8).contains(&share), "{share}");
    for (_, request, _) in &starts {
        request.check().unwrap();
    }
}

fn resampled(pods: usize, per_cent: f64, seed: u64) -> Vec<(u64, String, i64)> {
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\na,1000,1000,8,X\nb,1000,1000,2,X\n";
    let pod = |pod| format!("p{pod},1,1,1,{}\n", 100 + 100 * (pod % 5));
    let lines: String = (0..pods).map(pod).collect::<Vec<_>>().concat();
    let text = format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{lines}");
    let (nodes, pods) = (source("nodes", nodes), source("pods", &text));
    let trace = read(nodes, pods, &Columns::default(), Kind::Lrp, false).unwrap();
    let of = placement::ResourceName::parse(GPU).unwrap();
    let demands = Resample { per_cent, of }.draw(&trace.demands, &trace.cells, seed);
    let row = |demand: &Demand| {
        let request = demand.request().unwrap();
        assert_eq!(request.id, request.app);
        request.check().unwrap();
        let amount = request.devices[GPU].amount.unwrap();
        (demand.at_ms, request.app.clone(), amount)
    };
    demands.iter().map(row).collect()
}

#[test]
fn pods_are_drawn_up_to_a_demand() {
    // ten gpus, of which five pods ask for 1.5
    let drawn = resampled(5, 130.0, 7);
    let sum: i64 = drawn.iter().map(|(.., amount)| amount).sum();
    assert!((12_501..=13_000).contains(&sum), "{sum}");
    let names: BTreeSet<&str> = drawn.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names.len(), drawn.len(), "each has a name of its own");
    assert!((0..5).all(|pod| names.contains(format!("p{pod}").as_str())));
    let times: Vec<u64> = drawn.iter().map(|(at, ..)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[0] + 10 == pair[1]));
    assert_eq!(resampled(5, 130.0, 7), drawn);
    assert_ne!(resampled(5, 130.0, 8), drawn);
}

#[test]
fn a_list_that_asks_for_more_is_cut() {
    let drawn = resampled(100, 50.0, 7);
    let sum: i64 = drawn.iter().map(|(.., amount)| amount).sum();
    assert!((4_501..=5_000).contains(&sum), "{sum}");
    // each at most once, and not just the first ones
    let names: BTreeSet<&str> = drawn.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names.len(), drawn.len());
    assert!(drawn.iter().any(|(_, name, _)| name.len() == 3));
    assert!(resampled(0, 50.0, 7).is_empty());
}
