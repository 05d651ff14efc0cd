//! One task per subscription, which parses messages, passes them on, and waits for nothing else.

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use shared::{
    nats::{BusError, is_no_responders},
    wire::{Acceptance, InstancesAnswer, StopAnswer, kind},
};
use tokio::task::JoinSet;

use super::Shell;
use crate::ids::{DispatchId, LookupId, StopId};
use crate::{feed::ReportKind, io::AuctioneerInput};

impl Shell {
    /// Subscribes to everything that is published, and to the answers.
    pub(super) async fn listen(&self, name: &str, tasks: &mut JoinSet<()>) -> Result<(), BusError> {
        let subjects = &self.subjects;
        self.drain(subjects.adverts(), Self::advert, tasks).await?;
        self.drain(subjects.outcomes(), |_, m| Self::outcome(m), tasks)
            .await?;
        self.drain(
            subjects.event(kind::ASKED, "*"),
            |_, m| Self::asked(m),
            tasks,
        )
        .await?;
        self.drain(
            subjects.echo(name),
            |_, _| Some(AuctioneerInput::Echo),
            tasks,
        )
        .await?;
        self.drain(format!("{}.bid", self.inbox), |_, m| Self::bid(m), tasks)
            .await?;
        self.drain(
            format!("{}.state", self.inbox),
            |_, m| Self::state(m),
            tasks,
        )
        .await?;
        self.drain(format!("{}.*.*", self.inbox), |_, m| Self::answer(m), tasks)
            .await
    }

    async fn drain(
        &self,
        subject: String,
        read: impl Fn(&Self, &Message) -> Option<AuctioneerInput> + Send + 'static,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), BusError> {
        let subscribed = self.bus.client.subscribe(subject).await;
        let mut messages: Subscriber = subscribed.map_err(BusError::subscribe)?;
        let shell = self.clone();
        tasks.spawn(async move {
            while let Some(message) = messages.next().await {
                if let Some(input) = read(&shell, &message)
                    && shell.inputs.send(input).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }

    // all readers have the same signature
    #[allow(clippy::unnecessary_wraps)]
    fn advert(&self, message: &Message) -> Option<AuctioneerInput> {
        Some(AuctioneerInput::CellReport {
            kind: ReportKind::Advert,
            subject_cell: self.subjects.cell_of(&message.subject).map(str::to_owned),
            body: message.payload.clone(),
        })
    }

    fn bid(message: &Message) -> Option<AuctioneerInput> {
        cell_report(ReportKind::Bid, message)
    }

    fn state(message: &Message) -> Option<AuctioneerInput> {
        cell_report(ReportKind::State, message)
    }

    fn outcome(message: &Message) -> Option<AuctioneerInput> {
        let id = message.subject.rsplit('.').next()?.parse().ok()?;
        Some(AuctioneerInput::Outcome {
            id,
            body: message.payload.clone(),
        })
    }

    fn asked(message: &Message) -> Option<AuctioneerInput> {
        #[derive(serde::Deserialize)]
        struct Announced {
            #[serde(default)]
            request: Option<String>,
            #[serde(default)]
            requests: Vec<String>,
        }
        let asked: Announced = serde_json::from_slice(&message.payload).ok()?;
        let ids = asked.request.into_iter().chain(asked.requests);
        Some(AuctioneerInput::Announced(
            ids.filter_map(|id| id.try_into().ok()).collect(),
        ))
    }

    /// An answer to a start, a stop or a request for instances; the subject says which.
    fn answer(message: &Message) -> Option<AuctioneerInput> {
        let mut tokens = message.subject.rsplit('.');
        let number: u64 = tokens.next()?.parse().ok()?;
        let nobody = is_no_responders(message);
        let body = &message.payload;
        let input = match tokens.next()? {
            "start" if nobody => Some(AuctioneerInput::NoResponders {
                dispatch: DispatchId::new(number),
            }),
            "start" => serde_json::from_slice::<Acceptance>(body)
                .ok()
                .map(|answer| AuctioneerInput::StartAnswered {
                    dispatch: DispatchId::new(number),
                    answer: Box::new(answer),
                }),
            _ if nobody => return None, // no cell at all: it ends when its time is over
            "stop" => serde_json::from_slice::<StopAnswer>(body)
                .ok()
                .map(|answer| AuctioneerInput::StopAnswered {
                    stop: StopId::new(number),
                    answer: Box::new(answer),
                }),
            _ => serde_json::from_slice::<InstancesAnswer>(body)
                .ok()
                .map(|answer| AuctioneerInput::InstancesReported {
                    lookup: LookupId::new(number),
                    answer: Box::new(answer),
                }),
        };
        Some(input.unwrap_or(AuctioneerInput::Unreadable))
    }
}

fn cell_report(kind: ReportKind, message: &Message) -> Option<AuctioneerInput> {
    (!is_no_responders(message)).then_some(AuctioneerInput::CellReport {
        kind,
        subject_cell: None,
        body: message.payload.clone(),
    })
}
