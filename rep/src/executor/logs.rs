//! The output of instances: the last lines of each are kept, and lines are published at a limited rate.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use serde_json::{Map, Value};
use shared::{
    InstanceId, Subjects,
    clock::{Clock, millis},
    wire::{LogLine, Logs as Wanted, Work, to_bytes},
};

use crate::outbox::{Counters, Outbox};

/// The longest line, in bytes; longer ones are split.
pub(crate) const LINE: usize = 4_096;
/// How much of each instance's output is kept, in bytes.
const KEPT: usize = 128 * 1024;
/// For how many instances output is kept, including instances that have ended.
const RINGS: usize = 256;
/// How much output of a task is reported with its end, in bytes.
const TAIL: usize = shared::wire::MAX_TASK_OUTPUT;
/// The most ended tasks for which that is kept until it is reported.
const LEFT: usize = 1_024;
/// The most lines that an instance may publish at once.
const BURST: u64 = 1_000;
/// The most lines that an instance may publish per second in the long run.
const PER_SECOND: u64 = 500;
/// The default number of lines in an answer.
const LINES: usize = 100;

/// All output of one cell.
#[derive(Debug)]
pub(crate) struct Logs {
    cell: String,
    subjects: Subjects,
    clock: Clock,
    outbox: Outbox,
    counters: Arc<Counters>,
    rings: Mutex<Rings>,
    /// What ended tasks have left and that has not been reported yet.
    left: Mutex<BTreeMap<InstanceId, Left>>,
}

#[derive(Debug, Default)]
struct Rings {
    by_instance: BTreeMap<(String, u32), Ring>,
    /// A counter of uses, so that the least recently used ring is dropped first.
    uses: u64,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    used: u64,
}

#[derive(Debug)]
struct Line {
    instance: InstanceId,
    traceparent: Option<Arc<str>>,
    at_ms: u64,
    time_ms: u64,
    stream: &'static str,
    text: String,
}

/// What a task has left to be reported with its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    /// The end of its output.
    pub(crate) output: String,
    /// The content of its result file.
    pub(crate) result: Option<Map<String, Value>>,
}

/// The output of one instance.
#[derive(Debug)]
pub(crate) struct Sink {
    logs: Arc<Logs>,
    app: String,
    index: u32,
    instance: InstanceId,
    traceparent: Option<Arc<str>>,
    subject: String,
    rate: Mutex<Rate>,
    /// The last lines, for a task whose result is reported.
    tail: Option<Mutex<Tail>>,
    /// The content of its result file.
    result: Mutex<Option<Map<String, Value>>>,
    /// Lines not published since the last published one.
    dropped: AtomicU64,
}

/// A token bucket of lines that may be published. A state machine over the clock.
#[derive(Clone, Copy, Debug)]
struct Rate {
    left: u64,
    filled_ms: u64,
}

impl Rate {
    fn new(now_ms: u64) -> Self {
        Self {
            left: BURST,
            filled_ms: now_ms,
        }
    }

    fn take(&mut self, now_ms: u64) -> bool {
        let more = now_ms.saturating_sub(self.filled_ms) * PER_SECOND / 1_000;
        if more > 0 {
            self.left = (self.left + more).min(BURST);
            self.filled_ms = now_ms;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

impl Logs {
    pub(crate) fn new(
        cell: &str,
        subjects: Subjects,
        outbox: Outbox,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            cell: cell.to_owned(),
            subjects,
            clock: Clock::start(),
            outbox,
            counters,
            rings: Mutex::default(),
            left: Mutex::default(),
        })
    }

    /// Returns the sink for the output of this instance, creating it if needed.
    pub(crate) fn sink(self: &Arc<Self>, work: &Work) -> Sink {
        Sink {
            tail: work.has_result().then(Mutex::default),
            result: Mutex::default(),
            app: work.app.clone(),
            index: work.index,
            instance: work.instance,
            traceparent: work.traceparent.as_deref().map(Into::into),
            subject: self
                .subjects
                .log(&work.app, &work.index.to_string(), &self.cell),
            rate: Mutex::new(Rate::new(self.clock.now_ms())),
            dropped: AtomicU64::new(0),
            logs: Arc::clone(self),
        }
    }

    /// Removes and returns what an ended task has left.
    pub(crate) fn take_left(&self, instance: &InstanceId) -> Option<Left> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.remove(instance)
    }

    /// Returns the last lines, oldest first, in at most `most` bytes on the wire.
    pub(crate) fn last(&self, wanted: &Wanted, most: usize) -> Vec<LogLine> {
        let now_ms = self.clock.now_ms();
        let count = wanted.lines.unwrap_or(LINES);
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<(u64, LogLine)> = Vec::new();
        for ((app, index), ring) in &rings.by_instance {
            if *app != wanted.app || wanted.index.is_some_and(|i| i != *index) {
                continue;
            }
            let matches = |line: &&Line| wanted_line(line, wanted, now_ms);
            let found = ring.lines.iter().filter(matches);
            let skip = found.clone().count().saturating_sub(count);
            lines.extend(found.skip(skip).map(|line| {
                let age_ms = now_ms.saturating_sub(line.at_ms);
                let answer = self.line(app, *index, line);
                (line.at_ms, LogLine { age_ms, ..answer })
            }));
        }
        drop(rings);
        lines.sort_by_key(|(at_ms, _)| *at_ms);
        let mut room = most;
        let mut fits = 0;
        for (_, line) in lines.iter().rev() {
            let Some(left) = room.checked_sub(to_bytes(line).len() + 1) else {
                break;
            };
            room = left;
            fits += 1;
        }
        let skip = lines.len() - fits;
        lines.into_iter().skip(skip).map(|(_, line)| line).collect()
    }

    /// Sends what is waiting, within a short time limit.
    pub(crate) async fn flush(&self) {
        self.outbox.flush().await;
    }

    fn line(&self, app: &str, index: u32, line: &Line) -> LogLine {
        LogLine {
            v: shared::VERSION,
            app: app.to_owned(),
            index,
            instance: line.instance,
            time_ms: line.time_ms,
            cell: self.cell.clone(),
            stream: line.stream.to_owned(),
            text: line.text.clone(),
            dropped: 0,
            age_ms: 0,
            traceparent: line.traceparent.as_deref().map(str::to_owned),
        }
    }

    fn keep(&self, app: &str, index: u32, line: Line) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.uses += 1;
        let used = rings.uses;
        let ring = rings
            .by_instance
            .entry((app.to_owned(), index))
            .or_default();
        ring.used = used;
        ring.bytes += line.text.len();
        ring.lines.push_back(line);
        while ring.bytes > KEPT
            && let Some(old) = ring.lines.pop_front()
        {
            ring.bytes -= old.text.len();
        }
        if rings.by_instance.len() > RINGS {
            let oldest = rings.by_instance.iter().min_by_key(|(_, ring)| ring.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| rings.by_instance.remove(&key));
        }
    }
}

fn wanted_line(line: &Line, wanted: &Wanted, now_ms: u64) -> bool {
    let age_ms = now_ms.saturating_sub(line.at_ms);
    wanted.instance.is_none_or(|id| id == line.instance)
        && wanted.since.is_none_or(|since| age_ms <= millis(since.0))
}

impl Sink {
    /// Keeps a line, and publishes it if the rate allows.
    pub(crate) fn line(&self, stream: &'static str, text: String) {
        let now_ms = self.logs.clock.now_ms();
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = rate.take(now_ms);
        drop(rate);
        if let Some(tail) = &self.tail {
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.push(&text);
        }
        let line = self.stamped(now_ms, stream, text);
        if allowed {
            self.publish(&line);
        } else {
            self.drop_one();
        }
        self.logs.keep(&self.app, self.index, line);
    }

    /// Keeps the content of the result file. If it is not a JSON object, a log line says so without quoting it, because
    /// it may contain secrets.
    pub(crate) fn result(&self, text: &str) {
        if let Ok(result) = serde_json::from_str(text) {
            *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        } else {
            let text = "result.json: something else; expected a JSON object";
            self.line("vendue", text.to_owned());
        }
    }

    /// Keeps the end of the output of a task whose result is reported, and reports lines dropped at the end, which no
    /// later line would report.
    pub(crate) fn close(&self) {
        if let Some(tail) = &self.tail {
            let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
            let left = Left {
                output: tail.text(),
                result: result.take(),
            };
            let all = self.logs.left.lock();
            let mut all = all.unwrap_or_else(PoisonError::into_inner);
            while all.len() >= LEFT {
                all.pop_first();
            }
            all.insert(self.instance, left);
        }
        if self.dropped.load(Ordering::Relaxed) > 0 {
            let now_ms = self.logs.clock.now_ms();
            let text = "lines dropped by the rate limit".into();
            self.publish(&self.stamped(now_ms, "vendue", text));
        }
    }

    fn stamped(&self, at_ms: u64, stream: &'static str, text: String) -> Line {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Line {
            instance: self.instance,
            traceparent: self.traceparent.clone(),
            at_ms,
            time_ms: since_1970.map_or(0, millis),
            stream,
            text,
        }
    }

    fn publish(&self, line: &Line) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let message = self.logs.line(&self.app, self.index, line);
        let body = to_bytes(&LogLine { dropped, ..message });
        if !self.logs.outbox.publish_now(self.subject.clone(), body) {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.logs.counters.lines.fetch_add(1, Ordering::Relaxed);
    }
}

/// The last lines of an output, at most [`TAIL`] bytes in total.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    /// Including a line feed for each.
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: &str) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line.to_owned());
        // the first one may be cut
        while let Some(first) = self.lines.front()
            && self.bytes - (first.len() + 1) >= TAIL
        {
            self.bytes -= first.len() + 1;
            self.lines.pop_front();
        }
    }

    fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes);
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        let mut from = text.len().saturating_sub(TAIL);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text.split_off(from)
    }
}

/// Splits output into lines of at most [`LINE`] bytes.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes more output, and calls `line` for each complete line.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(String)) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let mut text = text;
            while self.partial.len() + text.len() > LINE {
                let (now, later) = text.split_at(LINE - self.partial.len());
                self.partial.extend_from_slice(now);
                line(self.take());
                text = later;
            }
            self.partial.extend_from_slice(text);
            if ends {
                line(self.take());
            }
        }
    }

    /// Returns the remaining output if it does not end with a newline.
    pub(crate) fn rest(&mut self) -> Option<String> {
        (!self.partial.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        // one character for one, so that a line stays as short as it was cut
        let text = String::from_utf8_lossy(&self.partial).replace('\u{fffd}', "?");
        self.partial.clear();
        match text.strip_suffix('\r') {
            Some(text) => text.to_owned(),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> Vec<String> {
        let mut all = Vec::new();
        let mut lines = Lines::default();
        for part in parts {
            lines.feed(part, |line| all.push(line));
        }
        all.extend(lines.rest());
        all
    }

    #[test]
    fn output_is_cut_at_its_lines() {
        assert_eq!(lines(&[b"a\nb", b"c\n\nd"]), ["a", "bc", "", "d"]);
        assert_eq!(lines(&[b"a\r\n"]), ["a"]);
        assert_eq!(lines(&[b"\xff\n"]), ["?"]);
        assert_eq!(lines(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_tail_is_the_last_ten_kib() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), "");
        tail.push("a");
        tail.push("");
        assert_eq!(tail.text(), "a\n\n");
        for n in 0..5_000 {
            tail.push(&format!("line {n} ü"));
        }
        let text = tail.text();
        assert!(
            text.len() <= TAIL && text.len() > TAIL - 20,
            "{}",
            text.len()
        );
        assert!(text.ends_with("line 4998 ü\nline 4999 ü\n"));
        assert!(tail.bytes < TAIL + 20);
    }

    #[test]
    fn long_lines_become_several_and_nothing_is_lost() {
        let long = vec![b'x'; 3 * LINE + 1];
        let cut = lines(&[&long[..10], &long[10..], b"\nend\n"]);
        let lengths: Vec<usize> = cut.iter().map(String::len).collect();
        assert_eq!(lengths, [LINE, LINE, LINE, 1, 3]);
        let exact = lines(&[&long[..LINE], b"\n"]);
        assert_eq!(exact.len(), 1);
    }

    #[test]
    fn the_rate_allows_a_burst_and_then_so_many_a_second() {
        let mut rate = Rate::new(0);
        let allowed = |rate: &mut Rate, at| (0..5_000).filter(|_| rate.take(at)).count() as u64;
        assert_eq!(allowed(&mut rate, 0), BURST);
        assert_eq!(allowed(&mut rate, 1_000), PER_SECOND);
        assert_eq!(allowed(&mut rate, 60_000), BURST);
    }
}
