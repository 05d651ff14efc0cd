//! Any text is either a scenario or an error; both engines decide a small scenario alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use placement::Explain;
use scenarios::OfflineAuction;

fuzz_target!(|text: &str| {
    let read = if text.starts_with('{') {
        OfflineAuction::from_json(text)
    } else {
        OfflineAuction::from_toml(text)
    };
    let Ok(scenario) = read else { return };
    let instances: u64 = scenario.requests.iter().map(|request| u64::from(request.instances)).sum();
    if instances > 100 || scenario.cells.len() > 100 {
        return;
    }
    let jobs = scenario.jobs();
    let draw = scenario.draw(Explain::Finalists);
    let mut pool = scenario.pool();
    let plain = pool.plan_plainly(&jobs, &scenario.policy, &draw);
    let fast = pool.plan(&jobs, &scenario.policy, &draw);
    assert_eq!(fast.decisions, plain.decisions);
    let _ = scenario.run(Explain::Cells);
});
