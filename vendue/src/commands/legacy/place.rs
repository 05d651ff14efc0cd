//! `legacy place`: predicts which DEAs a Cloud Controller would choose.

use advertiser::dea::DeaChoice;
use placement::{DecisionReport, PlanContext, Policy, Request, Span};
use serde::Serialize;

use super::listen::{ListenArgs, Listener};
use crate::{
    commands::{decisions, place},
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is published and nothing is started. Each of the finalists is equally likely. The memory and the \
                  number of the instances placed before are taken into account, but not their disk, as a Cloud \
                  Controller does until the next advertisement. The exit code is 3 when something is unplaced.\n\n\
                  Example: vendue legacy place --memory 512M --disk 1G --stack cflinuxfs2 --explain"
)]
pub(super) struct PlaceArgs {
    /// The app, whose instances are counted; by default one that runs nowhere
    #[arg(default_value = "-", value_name = "GUID")]
    app: String,
    /// Memory for each instance: MiB, or with a unit such as 64M or 1G
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    memory: i64,
    /// Disk for each instance: MiB, or with a unit such as 64M or 1G
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    disk: i64,
    /// Stack that the instances need
    #[arg(long)]
    stack: String,
    /// How many instances
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    instances: u32,
    /// Say what each stage dropped; =cells names the DEAs
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, value_name = "HOW",
          default_missing_value = "stages")]
    explain: Option<place::Depth>,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Listens and chooses.
pub(super) async fn place(global: &Global, args: &PlaceArgs) -> anyhow::Result<Exit> {
    let request = args.request()?;
    let policy = Policy::preset("dea").map_err(Usage::invalid)?;
    let mut listener = Listener::begin(global, &args.listen).await?;
    let time = Span(args.listen.time);
    note(format_args!("listening to DEAs for {time}"));
    listener.listen(args.listen.time).await?;
    listener.note_doubts();
    let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
    let context = PlanContext {
        seed,
        explain: place::explain(args.explain),
        ..PlanContext::default()
    };
    let now_ms = listener.now_ms();
    let mut choice = listener.estate.choose(now_ms, &request, &policy, &context);
    if choice.deas == 0 {
        nothing_heard(&mut choice, time);
    }
    let exit = place::exit(&choice.decisions);
    match global.output {
        Format::Json => output::document(&document(choice, policy.name()))?,
        Format::Table => show(&choice, &time.to_string())?,
    }
    Ok(exit)
}

/// Sets the reason if no DEA was heard: the policy's own reason would be that of a Cloud Controller, which does not
/// know either.
fn nothing_heard(choice: &mut DeaChoice, time: Span) {
    for decision in &mut choice.decisions {
        decision.reason = Some(format!("no DEA was heard within {time}"));
    }
}

impl PlaceArgs {
    fn request(&self) -> anyhow::Result<Request> {
        let mut request = Request::new(self.app.as_str(), self.memory, self.disk);
        request.instances = self.instances;
        request.stack = Some(self.stack.clone());
        request.check().map_err(Usage::invalid)?;
        Ok(request)
    }
}

/// The choice, for programs.
#[derive(Serialize)]
struct Document<'a> {
    policy: &'a str,
    deas: usize,
    decisions: Vec<DecisionReport>,
    failing: Vec<Failing>,
}

/// A DEA on whose advertisement a Cloud Controller fails.
#[derive(Serialize)]
struct Failing {
    dea: String,
    why: String,
}

fn document(choice: DeaChoice, policy: &str) -> Document<'_> {
    let failing = choice.failing.into_iter();
    let failing = failing.map(|(dea, why)| Failing {
        dea,
        why: why.to_string(),
    });
    Document {
        policy,
        deas: choice.deas,
        decisions: choice.decisions,
        failing: failing.collect(),
    }
}

fn show(choice: &DeaChoice, time: &str) -> anyhow::Result<()> {
    for (dea, why) in &choice.failing {
        note(format_args!(
            "warning: DEA {dea}: {why}; while that is valid every search of a Cloud Controller fails; \
             decided as if it did not"
        ));
    }
    decisions::print(&choice.decisions)?;
    for decision in &choice.decisions {
        if decision.finalists.len() > 1 {
            let name = format!("{} {}", decision.app, decision.index);
            let finalists = decision.finalists.join(", ");
            output::say_wrapped(&format!("{name}: finalists {finalists}"))?;
        }
    }
    let (counts, deas) = (
        decisions::counts(&choice.decisions),
        counted(choice.deas, "DEA"),
    );
    note(format_args!(
        "{counts}; {deas} heard within {time}, policy dea; nothing was started"
    ));
    Ok(())
}
