//! scratch
use simulator::{Settings, scenario::Scenario};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let verbatim = args.get(2).is_some_and(|a| a == "verbatim");
    let mut s = Scenario::read(&text, true).unwrap();
    if let Some(p) = std::env::var("POLICIES").ok() {
        s.contenders = p
            .split(',')
            .map(|p| simulator::scenario::Contender::read(&p.into(), "x").unwrap())
            .collect();
    }
    for c in &s.contenders {
        let t = std::time::Instant::now();
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(s.base.seed);
        let (run, _) = simulator::run(&s, c, Settings { seed, verbatim }, &mut |_| true).unwrap();
        let took = t.elapsed();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let hwm = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
        eprintln!("{}: {:?} {hwm}", c.label, took);
        println!("{}", serde_json::to_string_pretty(&run.figures).unwrap());
        if std::env::var("FULL").is_ok() {
            println!("{}", serde_json::to_string(&run).unwrap());
        }
        println!("{:?}", run.refusals);
        println!(
            "wait {:?}\nload {:?}",
            run.wait_histogram, run.load_histogram
        );
    }
}
