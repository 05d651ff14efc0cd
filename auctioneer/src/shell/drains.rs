//! One task for each subscription: it reads and hands on, and never waits for anything else.

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use shared::{
    nats::{BusError, is_no_responders},
    wire::{Acceptance, InstancesAnswer, StopAnswer, kind},
};
use tokio::task::JoinSet;

use super::Shell;
use crate::{Input, feed::Word};

impl Shell {
    /// Subscribes to all that is said without being asked for, and to the answers.
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
        self.drain(subjects.echo(name), |_, _| Some(Input::Echo), tasks)
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
        read: impl Fn(&Self, &Message) -> Option<Input> + Send + 'static,
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

    // the signature of all readers
    #[allow(clippy::unnecessary_wraps)]
    fn advert(&self, message: &Message) -> Option<Input> {
        Some(Input::Heard {
            word: Word::Advert,
            subject_cell: self.subjects.cell_of(&message.subject).map(str::to_owned),
            body: message.payload.clone(),
        })
    }

    fn bid(message: &Message) -> Option<Input> {
        heard(Word::Bid, message)
    }

    fn state(message: &Message) -> Option<Input> {
        heard(Word::State, message)
    }

    fn outcome(message: &Message) -> Option<Input> {
        let id = message.subject.rsplit('.').next()?.to_owned();
        Some(Input::Outcome {
            id,
            body: message.payload.clone(),
        })
    }

    fn asked(message: &Message) -> Option<Input> {
        #[derive(serde::Deserialize)]
        struct Asked {
            #[serde(default)]
            request: Option<String>,
            #[serde(default)]
            requests: Vec<String>,
        }
        let asked: Asked = serde_json::from_slice(&message.payload).ok()?;
        let ids = asked.request.into_iter().chain(asked.requests);
        Some(Input::Begun(ids.filter(|id| id.len() <= 128).collect()))
    }

    /// An answer to a start, a stop or the question what runs: the subject says to which.
    fn answer(message: &Message) -> Option<Input> {
        let mut tokens = message.subject.rsplit('.');
        let number: u64 = tokens.next()?.parse().ok()?;
        let nobody = is_no_responders(message);
        let body = &message.payload;
        let input = match tokens.next()? {
            "start" if nobody => Some(Input::NobodyListens { dispatch: number }),
            "start" => serde_json::from_slice::<Acceptance>(body)
                .ok()
                .map(|answer| Input::Answered {
                    dispatch: number,
                    answer: Box::new(answer),
                }),
            _ if nobody => return None, // no cell at all: the time that it is given ends it
            "stop" => serde_json::from_slice::<StopAnswer>(body)
                .ok()
                .map(|answer| Input::Stopped {
                    query: number,
                    answer: Box::new(answer),
                }),
            _ => serde_json::from_slice::<InstancesAnswer>(body)
                .ok()
                .map(|answer| Input::Found {
                    query: number,
                    answer: Box::new(answer),
                }),
        };
        Some(input.unwrap_or(Input::Garbled))
    }
}

fn heard(word: Word, message: &Message) -> Option<Input> {
    (!is_no_responders(message)).then_some(Input::Heard {
        word,
        subject_cell: None,
        body: message.payload.clone(),
    })
}
