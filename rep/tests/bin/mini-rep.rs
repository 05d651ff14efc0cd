//! A single cell for tests: `mini-rep URL CONFIG` (as JSON), together with the internal commands that it calls itself
//! with. Also an instance that can be checked: `mini-rep serve FILE`.

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::ExitCode,
    thread,
    time::Duration,
};

use shared::{Subjects, nats, shutdown};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("supervise") => return rep::supervisor::main(),
        Some(rep::supervisor::STEP) => return rep::supervisor::step(),
        _ => {}
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
    if let [serve, file] = args.as_slice()
        && serve == "serve"
    {
        return answer(file);
    }
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
            shutdown::gently_on_sigterm()?,
        )
        .await?;
        eprintln!("ended: {ended:?}");
        Ok(())
    })
}

/// Answers GET /up on `PORT` with the status in a file, once that exists, and everything else with 404.
fn answer(file: &str) -> Result<(), Box<dyn Error>> {
    while fs::metadata(file).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let port: u16 = env::var("PORT")?.parse()?;
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let mut stream = stream?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let status = match first.strip_prefix("GET /up ") {
            Some(_) => fs::read_to_string(file)?,
            None => "404".into(),
        };
        let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
    }
    Ok(())
}
