//! A cell alone, for tests: `mini-rep URL CONFIG` (as JSON), and what it calls itself with.

use std::{env, error::Error, process::ExitCode};

use shared::{Subjects, nats, shutdown};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "supervise") {
        return rep::supervisor::main();
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mini-rep: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Vec<String>) -> Result<(), Box<dyn Error>> {
    let [url, config]: [String; 2] = args
        .try_into()
        .map_err(|_| "usage: mini-rep URL CONFIG-AS-JSON")?;
    let config: rep::RepConfig = serde_json::from_str(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let options = nats::NatsOptions {
            url,
            name: format!("rep-{}", config.cell),
            patient: true,
            ..nats::NatsOptions::default()
        };
        let bus = nats::connect(&options).await?;
        let ended = rep::run(
            config,
            bus,
            Subjects::new("vendue")?,
            shutdown::on_signals()?,
        )
        .await?;
        eprintln!("ended: {ended:?}");
        Ok(())
    })
}
