//! Subjects for the cells' answers: below each cell's own subject, and addressed to us. The last token names the
//! question and this run, so that answers to an earlier run's questions are ignored.

use async_nats::HeaderMap;
use placement::Invalid;
use shared::AnswerTo;
use uuid::Uuid;

use crate::ids::{DispatchId, LookupId, StopId};

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Every cell.
    Bid,
    /// Every cell.
    Stop(StopId),
    /// Every cell.
    Instances(LookupId),
    /// One cell.
    State,
    /// One cell.
    Start(DispatchId),
}

/// The questions of this run.
#[derive(Debug)]
pub(super) struct Tokens {
    name: String,
    run: String,
    /// Prebuilt, because bids are asked for most often and name their auction themselves.
    bid: HeaderMap,
}

impl Tokens {
    pub(super) fn new(name: &str) -> Result<Self, Invalid> {
        let run = Uuid::new_v4().simple().to_string();
        Ok(Self {
            bid: AnswerTo::new(name, &format!("bid-0-{run}"))?.headers(),
            name: name.to_owned(),
            run,
        })
    }

    /// Returns the headers of a question to every cell.
    pub(super) fn headers(&self, asked: Asked) -> HeaderMap {
        if asked == Asked::Bid {
            return self.bid.clone();
        }
        // the name was checked at startup
        self.to(asked)
            .map_or_else(|_| HeaderMap::new(), |to| to.headers())
    }

    /// Returns where the answers to a question go.
    pub(super) fn to(&self, asked: Asked) -> Result<AnswerTo, Invalid> {
        let (what, number) = match asked {
            Asked::Bid => ("bid", 0),
            Asked::Stop(stop) => ("stop", stop.number()),
            Asked::Instances(lookup) => ("found", lookup.number()),
            Asked::State => ("state", 0),
            Asked::Start(dispatch) => ("start", dispatch.number()),
        };
        AnswerTo::new(&self.name, &format!("{what}-{number}-{}", self.run))
    }

    /// Returns the question that an answer's last token names; none if it is not from this run.
    pub(super) fn asked(&self, token: &str) -> Option<Asked> {
        let question = token.strip_suffix(&self.run)?.strip_suffix('-')?;
        let (what, number) = question.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        match what {
            "bid" => Some(Asked::Bid),
            "stop" => Some(Asked::Stop(StopId::new(number))),
            "found" => Some(Asked::Instances(LookupId::new(number))),
            "state" => Some(Asked::State),
            "start" => Some(Asked::Start(DispatchId::new(number))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::ANSWER_TO;

    use super::*;

    #[test]
    fn a_token_names_its_question_in_this_run_only() {
        let tokens = Tokens::new("a1").unwrap();
        for asked in [
            Asked::Bid,
            Asked::Stop(StopId::new(7)),
            Asked::Instances(LookupId::new(8)),
            Asked::State,
            Asked::Start(DispatchId::new(9)),
        ] {
            let headers = tokens.headers(asked);
            let to = headers.get(ANSWER_TO).unwrap().as_str();
            let token = to.strip_prefix("a1.").unwrap();
            assert_eq!(tokens.asked(token), Some(asked));
            assert_eq!(Tokens::new("a1").unwrap().asked(token), None);
        }
        assert_eq!(tokens.asked("stop-7"), None);
    }
}
