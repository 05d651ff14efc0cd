//! Parses an expression, with all checks that need no cell.

use super::Constants;
use crate::resource_name::ResourceName;

/// The most nodes in an expression.
const MAX_NODES: usize = 256;
/// The most levels of parentheses, calls and signs.
const MAX_LEVELS: usize = 32;
/// The longest text, in bytes.
const MAX_BYTES: usize = 2048;

/// An error in an objective, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ObjectiveError {
    /// The column in the expression, counted from 1, in characters.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
    /// The line that it is in.
    pub line: String,
    /// The column in that line, counted from 1.
    pub line_column: usize,
}

impl ObjectiveError {
    pub(super) fn new(text: &str, at: usize, message: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = text.get(start..).and_then(|rest| rest.lines().next());
        Self {
            column: before.chars().count() + 1,
            message: message.into(),
            line: line.unwrap_or_default().to_owned(),
            line_column: before.get(start..).unwrap_or_default().chars().count() + 1,
        }
    }

    /// Returns the line with a caret under the error.
    pub fn picture(&self) -> String {
        format!("{}\n{}^", self.line, " ".repeat(self.line_column - 1))
    }
}

/// A number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfJob {
    RequiredDisk,
    RequiredMemory,
    App,
    Instance,
    Instances,
}

/// A number of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfCell {
    AvailableMemory,
    AvailableDisk,
    TotalMemory,
    TotalDisk,
    Zone,
    Stack,
}

/// Which amount of a resource: what the request asks for, or what the cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmountOf {
    Required,
    Available,
    Total,
}

/// How the amounts are written, before the name of the resource.
const AMOUNTS: [(&str, AmountOf); 3] = [
    ("ai.Required.", AmountOf::Required),
    ("r.Available.", AmountOf::Available),
    ("r.Total.", AmountOf::Total),
];

/// A text of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    App,
    Blob,
    Stack,
}

/// A list of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Apps,
    Blobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// The parsed tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Number(f64),
    Constant(String, f64),
    Azs,
    Job(OfJob),
    Cell(OfCell),
    Amount(AmountOf, ResourceName),
    Count(Id, List),
    Negate(Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
}

const AI: [(&str, What); 7] = [
    ("RequiredDiskMB", What::Job(OfJob::RequiredDisk)),
    ("RequiredMemoryMB", What::Job(OfJob::RequiredMemory)),
    ("AppID", What::Job(OfJob::App)),
    ("InstanceNumber", What::Job(OfJob::Instance)),
    ("TotalInstances", What::Job(OfJob::Instances)),
    ("AppSourceBlobID", What::Id(Id::Blob)),
    ("Stack", What::Id(Id::Stack)),
];

const R: [(&str, What); 8] = [
    ("AvailableMemoryMB", What::Cell(OfCell::AvailableMemory)),
    ("AvailableDiskMB", What::Cell(OfCell::AvailableDisk)),
    ("TotalMemoryMB", What::Cell(OfCell::TotalMemory)),
    ("TotalDiskMB", What::Cell(OfCell::TotalDisk)),
    ("RunningAppIDs", What::List(List::Apps)),
    ("AvailZoneNumber", What::Cell(OfCell::Zone)),
    ("CachedBlobIDs", What::List(List::Blobs)),
    ("Stack", What::Cell(OfCell::Stack)),
];

#[derive(Clone, Copy, PartialEq)]
enum What {
    Job(OfJob),
    Cell(OfCell),
    Id(Id),
    List(List),
}

#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    Number(f64),
    Word(&'a str),
    Sign(char),
    End,
}

struct Parser<'a> {
    text: &'a str,
    constants: &'a Constants,
    /// The byte offsets of the current token and the next one.
    at: usize,
    next: usize,
    token: Token<'a>,
    nodes: usize,
    levels: usize,
}

pub(super) fn parse(text: &str, constants: &Constants) -> Result<Node, ObjectiveError> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes; expected at most {MAX_BYTES}", text.len());
        return Err(ObjectiveError::new(text, 0, message));
    }
    let mut parser = Parser {
        text,
        constants,
        at: 0,
        next: 0,
        token: Token::End,
        nodes: 0,
        levels: 0,
    };
    parser.advance()?;
    let tree = parser.expression()?;
    if parser.token != Token::End {
        return Err(parser.error("expected an operator (+ - * / mod) or the end"));
    }
    Ok(tree)
}

impl<'a> Parser<'a> {
    fn error(&self, message: impl Into<String>) -> ObjectiveError {
        ObjectiveError::new(self.text, self.at, message)
    }

    fn advance(&mut self) -> Result<(), ObjectiveError> {
        let rest = self.text.get(self.next..).unwrap_or_default();
        let skipped = rest.len() - rest.trim_start().len();
        self.at = self.next + skipped;
        let rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let length;
        if first.is_ascii_digit() || first == '.' {
            length = number_length(rest);
            let number: f64 = rest[..length]
                .parse()
                .map_err(|_| self.error(format!("{:?} is not a number", &rest[..length])))?;
            if !number.is_finite() {
                return Err(self.error("the number is too large; expected a finite one"));
            }
            self.token = Token::Number(number);
        } else if first.is_ascii_alphabetic() {
            length = rest.find(|c| !word(c)).unwrap_or(rest.len());
            self.token = Token::Word(&rest[..length]);
        } else if "+-*/(),".contains(first) {
            length = 1;
            self.token = Token::Sign(first);
        } else {
            return Err(self.error(format!(
                "unexpected character {first:?}; expected a number, a name, + - * / mod ( ) or ,"
            )));
        }
        self.next = self.at + length;
        Ok(())
    }

    fn node(&mut self, node: Node) -> Result<Node, ObjectiveError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.error(format!("more than {MAX_NODES} nodes")));
        }
        Ok(node)
    }

    fn deeper(&mut self) -> Result<(), ObjectiveError> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(self.error(format!("more than {MAX_LEVELS} levels")));
        }
        Ok(())
    }

    fn binary(&mut self, op: Binary, left: Node, right: Node) -> Result<Node, ObjectiveError> {
        self.node(Node::Binary(op, Box::new(left), Box::new(right)))
    }

    fn expression(&mut self) -> Result<Node, ObjectiveError> {
        let mut left = self.term()?;
        loop {
            let op = match self.token {
                Token::Sign('+') => Binary::Add,
                Token::Sign('-') => Binary::Subtract,
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.term()?;
            left = self.binary(op, left, right)?;
        }
    }

    fn term(&mut self) -> Result<Node, ObjectiveError> {
        let mut left = self.factor()?;
        loop {
            let op = match self.token {
                Token::Sign('*') => Binary::Multiply,
                Token::Sign('/') => Binary::Divide,
                Token::Word("mod") => Binary::Modulo,
                _ => return Ok(left),
            };
            self.advance()?;
            let at = self.at;
            let right = self.factor()?;
            if op == Binary::Modulo {
                self.check_modulus(at, &right)?;
            }
            left = self.binary(op, left, right)?;
        }
    }

    fn check_modulus(&self, at: usize, modulus: &Node) -> Result<(), ObjectiveError> {
        let value = match modulus {
            Node::Number(value) | Node::Constant(_, value) => *value,
            Node::Azs => return Ok(()),
            _ => {
                let message = "the modulus is computed; expected a number, a constant or AZs";
                return Err(ObjectiveError::new(self.text, at, message));
            }
        };
        if value == 0.0 {
            return Err(ObjectiveError::new(self.text, at, "the modulus is 0"));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<Node, ObjectiveError> {
        match self.token {
            Token::Number(number) => {
                self.advance()?;
                self.node(Node::Number(number))
            }
            Token::Sign('-') => {
                self.deeper()?;
                self.advance()?;
                let inner = self.factor()?;
                self.levels -= 1;
                self.node(Node::Negate(Box::new(inner)))
            }
            Token::Sign('(') => {
                self.deeper()?;
                self.advance()?;
                let inner = self.expression()?;
                self.levels -= 1;
                self.expect(')')?;
                Ok(inner)
            }
            Token::Word("count") => self.count(),
            Token::Word(word) => self.name(word),
            Token::Sign(sign) => Err(self.error(format!(
                "{sign:?} here; expected a number, a name, count(…) or ("
            ))),
            Token::End => {
                Err(self
                    .error("the expression ends here; expected a number, a name, count(…) or ("))
            }
        }
    }

    fn expect(&mut self, sign: char) -> Result<(), ObjectiveError> {
        if self.token != Token::Sign(sign) {
            return Err(self.error(format!("expected {sign:?}")));
        }
        self.advance()
    }

    fn name(&mut self, word: &'a str) -> Result<Node, ObjectiveError> {
        if let Some(node) = self.amount(word)? {
            self.advance()?;
            return self.node(node);
        }
        let node = match self.lookup(word)? {
            None if word == "AZs" => Node::Azs,
            None => {
                let value = self.constants.get(word);
                let value = value.ok_or_else(|| self.unknown(word))?;
                Node::Constant(word.to_owned(), value)
            }
            Some(What::Job(attribute)) => Node::Job(attribute),
            Some(What::Cell(attribute)) => Node::Cell(attribute),
            Some(What::Id(_)) => {
                return Err(self.error(format!(
                    "{word} is a string; expected a number here (count(…) takes strings)"
                )));
            }
            Some(What::List(_)) => {
                return Err(self.error(format!(
                    "{word} is a list; expected a number here (count(…) takes lists)"
                )));
            }
        };
        self.advance()?;
        self.node(node)
    }

    /// Parses an amount of a resource; none if the word has another form.
    fn amount(&self, word: &str) -> Result<Option<Node>, ObjectiveError> {
        let split = |(written, of): &(&str, AmountOf)| Some((word.strip_prefix(written)?, *of));
        let Some((name, of)) = AMOUNTS.iter().find_map(split) else {
            return Ok(None);
        };
        let resource = ResourceName::parse(name).ok_or_else(|| {
            self.error(format!(
                "{word:?} names no resource; expected memory, disk, containers, cpu, or the name of a set of devices \
                 or of a named resource"
            ))
        })?;
        Ok(Some(Node::Amount(of, resource)))
    }

    fn unknown(&self, word: &str) -> ObjectiveError {
        let mut known: Vec<_> = self.constants.iter().map(|(name, _)| name).collect();
        known.extend(["AZs", "ai.…", "r.…", "count(…)"]);
        self.error(format!(
            "unknown name {word:?}; expected one of {}",
            known.join(", ")
        ))
    }

    /// Looks up an attribute; none if the word does not start with `ai.` or `r.`.
    fn lookup(&self, word: &str) -> Result<Option<What>, ObjectiveError> {
        let (table, name): (&[(&str, What)], &str) = match word.split_once('.') {
            Some(("ai", name)) => (&AI, name),
            Some(("r", name)) => (&R, name),
            _ => return Ok(None),
        };
        let found = table.iter().find(|(known, _)| *known == name);
        if found.is_none() {
            let names: Vec<_> = table.iter().map(|(known, _)| *known).collect();
            let of = word.split_once('.').map_or("", |(of, _)| of);
            let meant = crate::words::nearest(name, &names);
            let hint = meant.map_or(String::new(), |name| format!("; did you mean {of}.{name}?"));
            let message = format!(
                "unknown attribute {word:?}; expected one of {}{hint}",
                names.join(", ")
            );
            return Err(self.error(message));
        }
        Ok(found.map(|(_, what)| *what))
    }

    fn count(&mut self) -> Result<Node, ObjectiveError> {
        self.deeper()?;
        self.advance()?;
        self.expect('(')?;
        let id = match self.token {
            Token::Word("ai.AppID") => Id::App,
            Token::Word(word) => match self.lookup(word)? {
                Some(What::Id(id)) => id,
                _ => return Err(self.not_an_id()),
            },
            _ => return Err(self.not_an_id()),
        };
        self.advance()?;
        self.expect(',')?;
        let list = match self.token {
            Token::Word(word) => match self.lookup(word)? {
                Some(What::List(list)) => list,
                _ => return Err(self.not_a_list()),
            },
            _ => return Err(self.not_a_list()),
        };
        self.advance()?;
        self.expect(')')?;
        self.levels -= 1;
        self.node(Node::Count(id, list))
    }

    fn not_an_id(&self) -> ObjectiveError {
        self.error("count's first argument; expected ai.AppID, ai.AppSourceBlobID or ai.Stack")
    }

    fn not_a_list(&self) -> ObjectiveError {
        self.error("count's second argument; expected r.RunningAppIDs or r.CachedBlobIDs")
    }
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut i: usize| {
        while bytes.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        i
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    end
}

/// Returns an attribute as it is written in expressions.
fn written(of: &str, table: &[(&str, What)], what: What) -> String {
    let found = table.iter().find(|(_, known)| *known == what);
    found.map_or(String::new(), |(name, _)| format!("{of}.{name}"))
}

impl Node {
    /// Writes one line per node, indented by two blanks per level.
    pub(super) fn show(&self, level: usize, out: &mut String) {
        let line = match self {
            Self::Number(value) => format!("{value}"),
            Self::Constant(name, value) => format!("{name} = {value}"),
            Self::Azs => "AZs".into(),
            Self::Job(attribute) => written("ai", &AI, What::Job(*attribute)),
            Self::Cell(attribute) => written("r", &R, What::Cell(*attribute)),
            Self::Amount(of, resource) => {
                let written = AMOUNTS.iter().find(|(_, known)| known == of);
                let of = written.map_or("", |(of, _)| of);
                format!("{of}{}", resource.name())
            }
            Self::Count(id, list) => {
                let id = match id {
                    Id::App => "ai.AppID".to_owned(),
                    id => written("ai", &AI, What::Id(*id)),
                };
                let list = written("r", &R, What::List(*list));
                format!("count({id}, {list})")
            }
            Self::Negate(_) => "negate".into(),
            Self::Binary(op, ..) => format!("{op:?}").to_lowercase(),
        };
        out.push_str(&"  ".repeat(level));
        out.push_str(&line);
        out.push('\n');
        match self {
            Self::Negate(inner) => inner.show(level + 1, out),
            Self::Binary(_, left, right) => {
                left.show(level + 1, out);
                right.show(level + 1, out);
            }
            _ => {}
        }
    }
}
