//! Turns the tables into demands.

use std::{collections::HashSet, sync::Arc, time::Duration};

use placement::{Invalid, Kind, Request};

use super::{Arrivals, InstancesToStop, Scale, Template, WorkloadTable, under};
use crate::{
    demand::{Demand, DemandAction},
    random::Random,
};

/// Maximum number of demands in a scenario; draws of a scale that change nothing count as well.
pub const MAX_DEMANDS: usize = 1_000_000;
/// Maximum number of instances that all demands of a scenario ask for.
pub const MAX_INSTANCES: u64 = 10_000_000;

/// Returns the demands of all tables, sorted by time; within one millisecond in the order of the tables, then of the
/// apps. Nothing is requested at or after `duration_ms`. The same seed gives the same list.
///
/// # Errors
/// The path of the first invalid field; more than [`MAX_DEMANDS`] demands or
/// [`MAX_INSTANCES`] instances; a name that two tables generate.
pub fn demands(
    workloads: &[WorkloadTable],
    duration_ms: Option<u64>,
    seed: u64,
) -> Result<Vec<Demand>, Invalid> {
    let mut generator = Generator {
        demands: Vec::new(),
        drawn: 0,
        instances: 0,
        end: duration_ms.map(Duration::from_millis),
        names: HashSet::new(),
    };
    let root = Random::new(seed);
    for (number, workload) in workloads.iter().enumerate() {
        let path = format!("workload[{number}]");
        workload.check(&path, duration_ms.is_some())?;
        let table = Table {
            workload,
            path,
            number,
            random: root.fork("workload", number as u64),
        };
        generator.table(&table)?;
    }
    let mut demands = generator.demands;
    demands.sort_by_key(|demand| demand.at_ms);
    Ok(demands)
}

struct Table<'a> {
    workload: &'a WorkloadTable,
    path: String,
    number: usize,
    random: Random,
}

/// One app of a table: the field that describes it, its first request, and the time of that.
struct App {
    field: &'static str,
    request: Request,
    at: Duration,
    random: Random,
}

struct Generator {
    demands: Vec<Demand>,
    /// The number of demands and of draws that led to none.
    drawn: usize,
    instances: u64,
    end: Option<Duration>,
    /// The names of apps that templates generated.
    names: HashSet<String>,
}

impl Generator {
    fn table(&mut self, table: &Table<'_>) -> Result<(), Invalid> {
        let workload = table.workload;
        let at = workload.at.unwrap_or_default().0;
        if let Some(start) = &workload.start {
            let app = App {
                field: "start",
                request: start.clone(),
                at,
                random: table.random.fork("app", 0),
            };
            self.app(table, 0, app)?;
        }
        if let Some(InstancesToStop { app, indices }) = &workload.stop {
            self.stop(table, at, app, indices.clone())?;
        }
        if let Some(apps) = &workload.apps {
            for n in 0..apps.count {
                self.templated(table, "apps", &apps.template, n, at)?;
            }
        }
        match (&workload.arrivals, &workload.app) {
            (Some(arrivals), Some(template)) => self.arrivals(table, arrivals, template),
            _ => Ok(()),
        }
    }

    fn arrivals(
        &mut self,
        table: &Table<'_>,
        arrivals: &Arrivals,
        template: &Template,
    ) -> Result<(), Invalid> {
        let mut random = table.random.fork("arrivals", 0);
        let until = arrivals.until.map(|until| until.0);
        let most = arrivals.count.unwrap_or(u32::MAX);
        let mut at = arrivals.from.unwrap_or_default().0;
        let mut n = 0;
        while n < most {
            at += arrivals.every.sample(&mut random);
            if until.is_some_and(|until| at >= until) || self.over(at) {
                break;
            }
            let together = arrivals.apps.as_ref().map_or(1, |a| a.sample(&mut random));
            for _ in 0..together.min(i64::from(most - n)) {
                self.templated(table, "app", template, n, at)?;
                n += 1;
            }
        }
        Ok(())
    }

    fn templated(
        &mut self,
        table: &Table<'_>,
        field: &'static str,
        template: &Template,
        n: u32,
        at: Duration,
    ) -> Result<(), Invalid> {
        let mut random = table.random.fork("app", u64::from(n));
        let request = template.draw(n, &mut random);
        if !self.names.insert(request.app.clone()) {
            let path = format!("{}.{field}.name", table.path);
            return Err(Invalid::new(
                path,
                request.app,
                "a name that no other table generates",
            ));
        }
        let app = App {
            field,
            request,
            at,
            random,
        };
        self.app(table, n, app)
    }

    /// Adds the demands of one app, from its first request to its end.
    fn app(&mut self, table: &Table<'_>, n: u32, app: App) -> Result<(), Invalid> {
        let App {
            field,
            mut request,
            at,
            mut random,
        } = app;
        if request.id.is_empty() {
            request.id = format!("w{}-{n}", table.number);
        }
        let workload = table.workload;
        let lifetime = workload.lifetime.as_ref().map(|l| l.sample(&mut random));
        let (kind, indices) = (request.kind, request.indices.clone());
        // instances of a task end by themselves, an app is stopped
        let of_instance = lifetime.filter(|_| kind == Kind::Task);
        let name = request.app.clone();
        let first = request.clone();
        self.start(table, field, at, request, of_instance)?;
        let ends = lifetime.filter(|_| kind == Kind::Lrp).map(|l| at + l);
        if let Some(scale) = &workload.scale {
            let random = random.fork("scale", 0);
            self.scale(table, scale, &first, (at, ends), random)?;
        }
        match ends {
            Some(ends) => self.stop(table, ends, &name, indices.unwrap_or_default()),
            None => Ok(()),
        }
    }

    fn scale(
        &mut self,
        table: &Table<'_>,
        scale: &Scale,
        first: &Request,
        (from, ends): (Duration, Option<Duration>),
        mut random: Random,
    ) -> Result<(), Invalid> {
        let (mut at, mut now) = (from, first.instances);
        for change in 1_u32.. {
            at += scale.every.sample(&mut random);
            if ends.is_some_and(|ends| at >= ends) || self.over(at) {
                break;
            }
            let by = scale.by.sample(&mut random);
            let by_count = u32::try_from(by.unsigned_abs()).unwrap_or(u32::MAX);
            self.count_draw(table)?;
            if by > 0 {
                let next = now.saturating_add(by_count);
                let request = Request {
                    id: format!("{}-{change}", first.id),
                    instances: next,
                    // a greater number is rejected when the request is checked
                    indices: (next <= placement::MAX_INSTANCES).then(|| (now..next).collect()),
                    ..first.clone()
                };
                self.start(table, "scale", at, request, None)?;
                now = next;
            } else if by < 0 && now > 1 {
                let next = now.saturating_sub(by_count).max(1);
                self.stop(table, at, &first.app, (next..now).collect())?;
                now = next;
            }
        }
        Ok(())
    }

    fn over(&self, at: Duration) -> bool {
        self.end.is_some_and(|end| at >= end)
    }

    fn start(
        &mut self,
        table: &Table<'_>,
        field: &str,
        at: Duration,
        request: Request,
        lifetime: Option<Duration>,
    ) -> Result<(), Invalid> {
        request.check().map_err(|e| under(&table.path, field, e))?;
        if self.over(at) {
            return Ok(());
        }
        let count = request.indices.as_ref().map(Vec::len);
        self.instances += count.map_or(u64::from(request.instances), |n| n as u64);
        if self.instances > MAX_INSTANCES {
            let value = format!("{} instances", self.instances);
            let expected = format!("at most {MAX_INSTANCES} instances in all demands");
            return Err(Invalid::new(&table.path, value, expected));
        }
        let action = DemandAction::Start {
            request: Arc::new(request),
            lifetime_ms: lifetime.map(millis),
        };
        self.push(table, at, action)
    }

    fn stop(
        &mut self,
        table: &Table<'_>,
        at: Duration,
        app: &str,
        indices: Vec<u32>,
    ) -> Result<(), Invalid> {
        if self.over(at) {
            return Ok(());
        }
        let app = app.to_owned();
        self.push(table, at, DemandAction::Stop { app, indices })
    }

    fn push(
        &mut self,
        table: &Table<'_>,
        at: Duration,
        action: DemandAction,
    ) -> Result<(), Invalid> {
        self.count_draw(table)?;
        let at_ms = millis(at);
        self.demands.push(Demand { at_ms, action });
        Ok(())
    }

    fn count_draw(&mut self, table: &Table<'_>) -> Result<(), Invalid> {
        self.drawn += 1;
        if self.drawn <= MAX_DEMANDS {
            return Ok(());
        }
        let expected = format!("at most {MAX_DEMANDS} starts, stops and changes of scale");
        Err(Invalid::new(
            &table.path,
            format!("{} demands", self.drawn),
            expected,
        ))
    }
}

/// Returns whole milliseconds; every time of a scenario is far below the maximum.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
