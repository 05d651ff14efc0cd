//! Subscriptions: one task each, which parses messages, passes them on, and waits for nothing else.

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use shared::{
    nats::{BusError, is_no_responders},
    wire::{Acceptance, InstancesAnswer, StopAnswer, WireError, check_version, kind, read},
};
use tokio::task::JoinSet;

use super::{Shell, tokens::Asked};
use crate::admission::read_announcement;
use crate::ids::{DispatchId, LookupId, StopId};
use crate::{feed::ReportKind, io::AuctioneerInput};

impl Shell {
    /// Subscribes to unsolicited messages and to answers.
    pub(super) async fn listen(&self, tasks: &mut JoinSet<()>) -> Result<(), BusError> {
        let subjects = &self.subjects;
        self.drain(subjects.adverts(), Self::advert, tasks).await?;
        self.drain(subjects.outcomes(), Self::outcome, tasks)
            .await?;
        self.drain(subjects.event(kind::ASKED, "*", "*"), Self::asked, tasks)
            .await?;
        self.drain(
            subjects.echo(&self.name),
            |_, m| Some(read_echo(&m.payload)),
            tasks,
        )
        .await?;
        let answers = subjects.cell_answers(&self.name, "*");
        self.drain(answers, Self::answer, tasks).await
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

    fn outcome(&self, message: &Message) -> Option<AuctioneerInput> {
        let id = message.subject.rsplit('.').next()?.parse().ok()?;
        if let Err(error) = check_version(&message.payload) {
            return Some(self.unreadable(message, &error));
        }
        Some(AuctioneerInput::Outcome {
            id,
            body: message.payload.clone(),
        })
    }

    fn asked(&self, message: &Message) -> Option<AuctioneerInput> {
        let subject = self.subjects.event_of(&message.subject)?;
        if let Err(error) = check_version(&message.payload) {
            return Some(self.unreadable(message, &error));
        }
        Some(read_announcement(subject.by, &message.payload))
    }

    fn unreadable(&self, message: &Message, error: &WireError) -> AuctioneerInput {
        self.log_dropped(&message.subject, error);
        AuctioneerInput::Unreadable
    }

    /// Reads a cell's answer; the subject says to which question, and from which cell.
    fn answer(&self, message: &Message) -> Option<AuctioneerInput> {
        let subject = self.subjects.answer_of(&message.subject)?;
        let body = &message.payload;
        let input = match self.tokens.asked(subject.token) {
            None => return Some(AuctioneerInput::Unreadable),
            Some(Asked::Bid) => return cell_report(ReportKind::Bid, subject.by, message),
            Some(Asked::State) => return cell_report(ReportKind::State, subject.by, message),
            Some(Asked::Start(dispatch)) if is_no_responders(message) => {
                return Some(AuctioneerInput::NoResponders { dispatch });
            }
            Some(Asked::Start(dispatch)) => read::<Acceptance>(body)
                .map(|answer| (answer.cell == subject.by, started(dispatch, answer))),
            Some(Asked::Stop(stop)) => read::<StopAnswer>(body)
                .map(|answer| (answer.cell == subject.by, stopped(stop, answer))),
            Some(Asked::Instances(lookup)) => read::<InstancesAnswer>(body)
                .map(|answer| (answer.cell == subject.by, reported(lookup, answer))),
        };
        Some(self.attributed(message, input))
    }

    /// Checks that an answer's body names the same sender as its subject.
    fn attributed(
        &self,
        message: &Message,
        answer: Result<(bool, AuctioneerInput), WireError>,
    ) -> AuctioneerInput {
        match answer {
            Err(error) => self.unreadable(message, &error),
            Ok((false, _)) => AuctioneerInput::WrongSubject,
            Ok((true, input)) => input,
        }
    }
}

/// Reads an echo, which says which run of an auctioneer it is from.
fn read_echo(body: &[u8]) -> AuctioneerInput {
    let token = std::str::from_utf8(body).ok();
    let token = token.and_then(|text| text.parse().ok());
    token.map_or(AuctioneerInput::Echo, AuctioneerInput::EchoOf)
}

fn started(dispatch: DispatchId, answer: Acceptance) -> AuctioneerInput {
    AuctioneerInput::StartAnswered {
        dispatch,
        answer: Box::new(answer),
    }
}

fn stopped(stop: StopId, answer: StopAnswer) -> AuctioneerInput {
    AuctioneerInput::StopAnswered {
        stop,
        answer: Box::new(answer),
    }
}

fn reported(lookup: LookupId, answer: InstancesAnswer) -> AuctioneerInput {
    AuctioneerInput::InstancesReported {
        lookup,
        answer: Box::new(answer),
    }
}

fn cell_report(kind: ReportKind, cell: &str, message: &Message) -> Option<AuctioneerInput> {
    (!is_no_responders(message)).then(|| AuctioneerInput::CellReport {
        kind,
        subject_cell: Some(cell.to_owned()),
        body: message.payload.clone(),
    })
}
