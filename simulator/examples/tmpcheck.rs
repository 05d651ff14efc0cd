fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap());
    let (from, to) = (args.next().unwrap(), args.next().unwrap());
    if from == to {
        let (t, v) = simulator::check::replay(from);
        println!("{}\n{v:?}", t.join("\n"));
        return;
    }
    let began = std::time::Instant::now();
    let r = simulator::check::check_seeds(from..to, 2, &|_, _| true);
    for f in &r.failures {
        println!(
            "seed {} {:?} {:?}\n{}",
            f.seed,
            f.violation,
            f.steps,
            f.timeline.join("\n")
        );
    }
    println!(
        "{} seeds {} events {} asked {:?} doubles {} longest {} {:?} in {:?}",
        r.seeds,
        r.events,
        r.asked,
        r.faults,
        r.short_doubles,
        r.longest_double_ms,
        r.violations,
        began.elapsed()
    );
}
