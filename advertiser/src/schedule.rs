//! When to advertise. A state machine over the cell's own clock; it sends nothing itself.

use std::time::Duration;

use placement::{Invalid, Span};

/// The shortest time between two advertisements that changes cause, unless a cadence says another.
const ON_CHANGE_MS: u64 = 100;
/// The answers to `discover` of all cells are spread over this long, and no cell answers twice in it.
const ANSWER_MS: u64 = 250;
/// An interval is shortened by a random part of itself, at most one in so many.
const JITTER_PART: u64 = 10;

/// How often a cell is heard and how long its word holds.
#[allow(clippy::struct_field_names)] // units end a name
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    interval_ms: u64,
    ttl_ms: u64,
    on_change_ms: u64,
}

impl Default for Cadence {
    /// As reps have it when nobody says otherwise: every 5 s, for 15 s.
    fn default() -> Self {
        Self {
            interval_ms: 5_000,
            ttl_ms: 15_000,
            on_change_ms: ON_CHANGE_MS,
        }
    }
}

impl Cadence {
    /// Refuses an interval under 10 ms or over half the ttl: one lost message must not lose a cell.
    pub fn new(interval: Span, ttl: Span) -> Result<Self, Invalid> {
        let (interval_ms, ttl_ms) = (millis(interval.0), millis(ttl.0));
        if interval_ms < 10 {
            let value = text(interval);
            return Err(Invalid::new("interval", value, "at least 10ms"));
        }
        if interval_ms > ttl_ms / 2 {
            let most = text(Span(Duration::from_millis(ttl_ms / 2)));
            let expected = format!("at most half the ttl of {} ({most})", text(ttl));
            return Err(Invalid::new("interval", text(interval), expected));
        }
        Ok(Self {
            interval_ms,
            ttl_ms,
            on_change_ms: ON_CHANGE_MS,
        })
    }

    /// Another shortest time between two advertisements that changes cause; above the interval,
    /// changes cause none, as with the cells of old that spoke only every few seconds.
    pub fn with_on_change(self, gap: Span) -> Self {
        Self {
            on_change_ms: millis(gap.0),
            ..self
        }
    }

    /// Whether a change is advertised sooner than without it.
    pub fn tells_changes(&self) -> bool {
        self.on_change_ms < self.interval_ms
    }

    /// Milliseconds between two advertisements without news, on average: an interval less the mean
    /// of its jitter.
    pub fn mean_interval_ms(&self) -> f64 {
        self.interval_ms as f64 - (self.interval_ms / JITTER_PART) as f64 / 2.0
    }

    /// How long an advertisement holds.
    pub fn ttl(&self) -> Span {
        Span(Duration::from_millis(self.ttl_ms))
    }
}

/// What a schedule is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time passed.
    Tick,
    /// The cell's state changed.
    Changed,
    /// It must be heard at once: a new connection, the begin of a drain.
    AtOnce,
    /// Somebody asked every cell to advertise.
    Discover,
    /// The cell leaves.
    Leave,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Publish the cell's state.
    Advertise,
    /// Publish it with a ttl of 0: this is the last word.
    Withdraw,
}

/// One cell's schedule. The first advertisement is due at once.
#[derive(Clone, Debug)]
pub struct Schedule {
    cadence: Cadence,
    /// Where in the 250 ms this cell answers.
    answer_delay_ms: u64,
    random: u64,
    next_regular_ms: u64,
    changed: bool,
    answer_at_ms: Option<u64>,
    last_sent_ms: Option<u64>,
    last_answer_ms: Option<u64>,
    left: bool,
}

impl Schedule {
    /// The schedule of `cell`, which starts at `now_ms`. The cell's name and the seed decide where
    /// in the 250 ms after a `discover` it answers, and its jitter.
    pub fn new(cadence: Cadence, cell: &str, seed: u64, now_ms: u64) -> Self {
        let hash = hash(cell.as_bytes(), seed);
        Self {
            cadence,
            answer_delay_ms: hash % ANSWER_MS,
            random: hash,
            next_regular_ms: now_ms,
            changed: false,
            answer_at_ms: None,
            last_sent_ms: None,
            last_answer_ms: None,
            left: false,
        }
    }

    /// Takes an input and says what is to be done now; after [`Output::Withdraw`] nothing is.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Option<Output> {
        if self.left {
            return None;
        }
        match input {
            Input::Tick => {}
            Input::Changed => self.changed = true,
            Input::AtOnce => return Some(self.send(now_ms)),
            Input::Discover => self.plan_answer(now_ms),
            Input::Leave => {
                self.left = true;
                return Some(Output::Withdraw);
            }
        }
        (self.due_ms() <= now_ms).then(|| self.send(now_ms))
    }

    /// When it wants to be told of the time next; none once it has left.
    pub fn next_ms(&self) -> Option<u64> {
        (!self.left).then(|| self.due_ms())
    }

    /// When it wants to be told of the time next for another reason than that an interval is over:
    /// a change, an answer to `discover`. None when there is none. For a driver of virtual time that
    /// counts advertisements without news instead of making them.
    pub fn next_news_ms(&self) -> Option<u64> {
        let due_ms = self.change_ms().min(self.answer_at_ms.unwrap_or(u64::MAX));
        (!self.left && due_ms < u64::MAX).then_some(due_ms)
    }

    fn plan_answer(&mut self, now_ms: u64) {
        if self.answer_at_ms.is_none() {
            let earliest = self.last_answer_ms.map_or(0, |last| last + ANSWER_MS);
            self.answer_at_ms = Some((now_ms + self.answer_delay_ms).max(earliest));
        }
    }

    fn due_ms(&self) -> u64 {
        self.next_regular_ms
            .min(self.change_ms())
            .min(self.answer_at_ms.unwrap_or(u64::MAX))
    }

    fn change_ms(&self) -> u64 {
        if !self.changed {
            return u64::MAX;
        }
        self.last_sent_ms
            .map_or(0, |last| last.saturating_add(self.cadence.on_change_ms))
    }

    /// Whatever the reason, all that wait for an advertisement hear this one.
    fn send(&mut self, now_ms: u64) -> Output {
        if self.answer_at_ms.take().is_some() {
            self.last_answer_ms = Some(now_ms);
        }
        self.changed = false;
        self.last_sent_ms = Some(now_ms);
        let jitter = self.draw() % (self.cadence.interval_ms / JITTER_PART + 1);
        self.next_regular_ms = now_ms + self.cadence.interval_ms - jitter;
        Output::Advertise
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

/// FNV-1a over the name, mixed with the seed.
fn hash(name: &[u8], seed: u64) -> u64 {
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv ^ seed)
}

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn millis(duration: Duration) -> u64 {
    // far beyond any sensible setting, and additions to a clock stay far from overflowing
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .min(1 << 50)
}

fn text(span: Span) -> String {
    format!("{:?}", span.0)
}

#[cfg(test)]
mod tests;
