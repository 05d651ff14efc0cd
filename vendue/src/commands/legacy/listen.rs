//! Listens to DEAs.

use std::time::Duration;

use advertiser::dea::{Estate, EstateInput, EstateOptions};
use anyhow::anyhow;
use async_nats::Subscriber;
use futures_util::{StreamExt, stream::SelectAll};
use tokio::time::{Instant, timeout_at};

use crate::{
    cluster::Cluster,
    context::{Global, Usage},
    output::note,
};

#[derive(Debug, clap::Args)]
pub(super) struct ListenArgs {
    /// How long to listen; a DEA advertises every 5 s
    #[arg(long = "for", value_name = "TIME", default_value = "6s",
          value_parser = humantime::parse_duration)]
    pub(super) time: Duration,
    /// How long an advertisement is valid, in whole seconds; many Cloud Controllers were deployed with 15s
    #[arg(long, value_name = "TIME", default_value = "10s",
          value_parser = humantime::parse_duration)]
    expiry: Duration,
}

/// The longest time for which an advertisement may count.
const MAX_EXPIRY: Duration = Duration::from_secs(3_600);
/// How often the estate is told that time has passed.
const TICK: Duration = Duration::from_secs(1);

impl ListenArgs {
    fn options(&self) -> anyhow::Result<EstateOptions> {
        let whole = self.expiry.subsec_nanos() == 0;
        if !whole || self.expiry.is_zero() || self.expiry > MAX_EXPIRY {
            let (value, most) = (self.expiry, placement::Span(MAX_EXPIRY));
            let value = placement::Span(value);
            let message = format!("--expiry: {value}; expected whole seconds, from 1s to {most}");
            return Err(Usage::of_field(Some("--expiry".into()), message));
        }
        Ok(EstateOptions {
            expiry_s: self.expiry.as_secs(),
        })
    }
}

/// A connection that listens to an estate.
pub(super) struct Listener {
    /// What was heard.
    pub(super) estate: Estate,
    cluster: Cluster,
    messages: SelectAll<Subscriber>,
    began: Instant,
    ticked: Instant,
}

impl Listener {
    /// Connects and begins to listen.
    pub(super) async fn begin(global: &Global, args: &ListenArgs) -> anyhow::Result<Self> {
        let options = args.options()?;
        let cluster = Cluster::connect(global).await?;
        let mut messages = SelectAll::new();
        for subject in Estate::SUBJECTS {
            messages.push(cluster.bus.client.subscribe(subject).await?);
        }
        cluster.bus.client.flush().await?;
        let now = Instant::now();
        Ok(Self {
            estate: Estate::new(options),
            cluster,
            messages,
            began: now,
            ticked: now,
        })
    }

    /// Returns the milliseconds since it began, which is the estate's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Listens for this time.
    pub(super) async fn listen(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        loop {
            let wake = until.min(self.ticked + TICK);
            match timeout_at(wake, self.messages.next()).await {
                Ok(Some(message)) => {
                    let heard = EstateInput::Heard {
                        subject: &message.subject,
                        body: &message.payload,
                    };
                    let now_ms = self.now_ms();
                    self.estate.handle(now_ms, heard);
                }
                Ok(None) => return Err(anyhow!("the connection to NATS is closed")),
                Err(_) => {}
            }
            let now = Instant::now();
            if now >= until || now >= self.ticked + TICK {
                self.ticked = now;
                self.estate.handle(self.now_ms(), EstateInput::Tick);
            }
            if now >= until {
                return Ok(());
            }
        }
    }

    /// Reports reasons to doubt what was heard.
    pub(super) fn note_doubts(&self) {
        if !*self.cluster.bus.connected.borrow() {
            note("warning: not connected to NATS: nothing is heard");
        }
        let dropped = self
            .cluster
            .bus
            .dropped
            .load(std::sync::atomic::Ordering::Relaxed);
        if dropped > 0 {
            note(format_args!(
                "warning: messages were lost ({dropped} times): they came faster than they were read"
            ));
        }
        if self.estate.dropped > 0 {
            note(format_args!(
                "warning: {} messages of further DEAs were dropped: at most {} are known at a time",
                self.estate.dropped,
                advertiser::dea::MAX_DEAS
            ));
        }
    }
}
