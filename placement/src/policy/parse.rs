//! Parses policies: TOML with positions, or the JSON of a scenario.

use std::{sync::Arc, time::Duration};

use toml::de::DeTable;

use super::{
    Combine, Filter, Mode, Narrow, Order, Pick, Policy, Score, Stage, Step, Term, expected,
    expression,
    node::{Fault, Fields, Node, Value, entries, from_json, wrong},
    presets,
};
use crate::{
    fragmentation::Fragments, grouping::Grouping, objective::ObjectiveError, request::Kind,
    resource_name::ResourceName, resources::Resource, times::Span,
};

/// An error in a policy, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}{}", place(*.line, *.column), hint(.nearest.as_deref()))]
pub struct PolicyError {
    /// The line in the file, counted from 1; 0 if the policy is not from text.
    pub line: usize,
    /// The column in the line, counted from 1; 0 if the policy is not from text.
    pub column: usize,
    /// The error and what was expected.
    pub message: String,
    /// The valid name most similar to the wrong one.
    pub nearest: Option<String>,
}

fn place(line: usize, column: usize) -> String {
    if line == 0 {
        return String::new();
    }
    format!("line {line}, column {column}: ")
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean {name:?}?"))
}

impl Policy {
    /// Parses a policy file: a whole policy, or `preset = "NAME"` with parameters.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let place = |fault: Fault| locate(text, fault);
        let table = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            place(Fault::new(at, e.message().trim().to_owned()))
        })?;
        let at = table.span().start;
        let node = Node {
            at,
            value: Value::Table(entries(table.get_ref())),
        };
        read(node).map_err(place)
    }

    /// Parses the `policy` of a scenario: a preset's name, a preset with parameters, or a whole
    /// policy.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, PolicyError> {
        read(from_json(json)).map_err(|fault| PolicyError {
            line: 0,
            column: 0,
            message: fault.message,
            nearest: fault.nearest,
        })
    }
}

fn read(node: Node) -> Result<Policy, Fault> {
    if let Value::Text(name) = &node.value {
        return presets::find(name)
            .ok_or_else(|| Fault::unknown(node.at, "policy", name, Policy::PRESETS));
    }
    let mut fields = Fields::new(node, "the policy")?;
    if let Some((name, at)) = fields.text("preset")? {
        let mut policy = presets::find(&name)
            .ok_or_else(|| Fault::unknown(at, "preset", &name, Policy::PRESETS))?;
        presets::parameters(&mut policy, &mut fields)?;
        fields.finish()?;
        return Ok(policy);
    }
    whole(fields)
}

/// How long deferred work may wait where the policy does not say: many starts, one after another.
const MAX_DEFERRAL: Span = Span(Duration::from_secs(600));

fn whole(mut fields: Fields) -> Result<Policy, Fault> {
    let at = fields.at;
    let name = fields
        .text("name")?
        .ok_or_else(|| Fault::new(at, "the policy has no name; expected name = \"…\""))?;
    crate::invalid::check_name("name", &name.0).map_err(|e| Fault::new(name.1, e.to_string()))?;
    let orders = [
        ("asked", Order::Asked),
        ("diego", Order::Diego),
        ("largest-first", Order::LargestFirst),
    ];
    let combines = [("sum", Combine::Sum), ("product", Combine::Product)];
    let mut policy = Policy {
        name: name.0,
        order: fields.word("order", &orders)?.unwrap_or(Order::Asked),
        bids: fields.flag("bids")?.unwrap_or(true),
        max_in_flight: fields.count("max_in_flight")?.unwrap_or(0),
        max_starting_per_cell: fields.count("max_starting_per_cell")?.unwrap_or(0),
        max_deferral: fields.span("max_deferral")?.unwrap_or(MAX_DEFERRAL),
        combine: fields.word("combine", &combines)?.unwrap_or(Combine::Sum),
        stages: Vec::new(),
        pick: Pick::Sample,
        expected: expected::read(&mut fields)?.map(Arc::new),
    };
    let stages = match fields.take("stage") {
        Some(Node {
            value: Value::List(list),
            ..
        }) => list,
        Some(node) => return Err(wrong("stage", &node, "a list of tables, [[stage]]")),
        None => {
            return Err(Fault::new(
                at,
                "the policy has no stages; expected [[stage]]",
            ));
        }
    };
    fields.finish()?;
    if stages.len() > 64 {
        return Err(Fault::new(at, "more than 64 stages"));
    }
    let mut picked = false;
    for node in stages {
        let node_at = node.at;
        if picked {
            return Err(Fault::new(
                node_at,
                "a stage after the pick; the pick ends a policy",
            ));
        }
        match stage(node)? {
            Part::Stage(stage) => policy.stages.push(stage),
            Part::Pick(pick) => {
                policy.pick = pick;
                picked = true;
            }
        }
    }
    if !picked {
        return Err(Fault::new(
            at,
            "the policy ends without a pick; expected a last stage with pick = \"…\"",
        ));
    }
    check_pick(&policy, at)?;
    Ok(policy)
}

fn check_pick(policy: &Policy, at: usize) -> Result<(), Fault> {
    let scores = |stage: &Stage| matches!(stage.step, Step::Score(_));
    let has_scores = policy.stages.iter().any(scores);
    let needs_scores = policy.pick != Pick::Sample;
    if needs_scores && !has_scores {
        return Err(Fault::new(at, "the pick needs at least one score stage"));
    }
    if !needs_scores && has_scores {
        return Err(Fault::new(
            at,
            "pick = \"sample\" ignores scores; expected lowest, highest or first-of",
        ));
    }
    Ok(())
}

enum Part {
    Stage(Stage),
    Pick(Pick),
}

fn stage(node: Node) -> Result<Part, Fault> {
    let mut fields = Fields::new(node, "the stage")?;
    let kinds = [("lrp", Kind::Lrp), ("task", Kind::Task)];
    let found = (
        fields.text("filter")?,
        fields.text("narrow")?,
        fields.text("score")?,
        fields.text("pick")?,
    );
    let step = match found {
        (Some(name), None, None, None) => Step::Filter(filter(&mut fields, name)?),
        (None, Some(name), None, None) => Step::Narrow(narrow(&mut fields, &name)?),
        (None, None, Some(name), None) => Step::Score(score(&mut fields, name)?),
        (None, None, None, Some(name)) => {
            let pick = pick(&mut fields, name)?;
            fields.finish()?;
            return Ok(Part::Pick(pick));
        }
        none_or_many => {
            let what = "a stage has exactly one of filter, narrow, score, pick";
            let misspelt = match none_or_many {
                (None, None, None, None) => fields.none_of(&["filter", "narrow", "score", "pick"]),
                _ => None,
            };
            return Err(misspelt.unwrap_or_else(|| Fault::new(fields.at, what)));
        }
    };
    let kind = fields.word("kind", &kinds)?;
    fields.finish()?;
    Ok(Part::Stage(Stage { step, kind }))
}

fn filter(fields: &mut Fields, (name, at): (String, usize)) -> Result<Filter, Fault> {
    let mut filter = named(&Filter::ALL, Filter::name, "filter", (&name, at))?;
    match &mut filter {
        Filter::ContainerCount { limit } => *limit = fields.count("limit")?.unwrap_or(*limit),
        Filter::RebootWithin { .. } => filter = reboot_within(fields)?,
        _ => {}
    }
    Ok(filter)
}

/// Returns the entry with this name.
fn named<T: Clone>(
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    what: &str,
    (name, at): (&str, usize),
) -> Result<T, Fault> {
    let found = all.iter().find(|one| name_of(one) == name).cloned();
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(name_of).collect();
        Fault::unknown(at, what, name, &names)
    })
}

fn reboot_within(fields: &mut Fields) -> Result<Filter, Fault> {
    let days = match fields.number("days")? {
        Some((days, at)) if days < 0.0 => {
            return Err(Fault::new(
                at,
                format!("days is {days}; expected a number from 0"),
            ));
        }
        other => other.map(|(days, _)| days),
    };
    let batch = fields.text("batch")?.map(|(batch, _)| batch);
    Ok(Filter::RebootWithin { days, batch })
}

fn narrow(fields: &mut Fields, (name, at): &(String, usize)) -> Result<Narrow, Fault> {
    let narrow = named(&Narrow::ALL, Narrow::name, "narrow", (name, *at))?;
    let Narrow::Fewest(_) = narrow else {
        return Ok(narrow);
    };
    let missing = || {
        Fault::new(
            *at,
            format!("by is missing; expected {}", Grouping::EXPECTED),
        )
    };
    grouping(fields)?.map(Narrow::Fewest).ok_or_else(missing)
}

/// Returns by what cells are grouped; none if the stage does not say it.
fn grouping(fields: &mut Fields) -> Result<Option<Grouping>, Fault> {
    let Some((name, at)) = fields.text("by")? else {
        return Ok(None);
    };
    let grouping = Grouping::parse(&name).ok_or_else(|| {
        let message = format!("by is {name:?}; expected {}", Grouping::EXPECTED);
        Fault::new(at, message)
    })?;
    Ok(Some(grouping))
}

pub(super) const MODES: [(&str, Mode); 3] = [
    ("rank", Mode::Rank),
    ("ratio", Mode::Ratio),
    ("raw", Mode::Raw),
];

fn score(fields: &mut Fields, (name, at): (String, usize)) -> Result<Score, Fault> {
    let mut weight = 1.0;
    let known = Term::PLAIN.into_iter().find(|term| term.name() == name);
    let term = match known {
        Some(Term::Index { raw }) => Term::Index {
            raw: fields
                .word("index_mode", &[("rank", false), ("raw", true)])?
                .unwrap_or(raw),
        },
        Some(Term::Resources) => match resources(fields)? {
            Some(of) => Term::Used {
                of: of.into(),
                squared: fields.flag("squared")?.unwrap_or(false),
            },
            None => Term::Resources,
        },
        Some(Term::AppInstances) => match grouping(fields)? {
            Some(grouping) => Term::GroupInstances(grouping),
            None => Term::AppInstances,
        },
        Some(term) => term,
        None if name == Term::FRAGMENTATION => Term::Fragmentation {
            fragments: fragments(fields, at)?,
            steps: fields.count("steps")?.unwrap_or(0),
            scarce_below: above_0(fields, "scarce_below")?,
        },
        None if name == Term::OBJECTIVE => {
            Term::Objective(Arc::new(expression::objective(fields, None)?))
        }
        None => {
            let plain = Term::PLAIN.iter().map(Term::name);
            let names: Vec<&str> = plain
                .chain([Term::FRAGMENTATION, Term::OBJECTIVE])
                .collect();
            return Err(Fault::unknown(at, "score", &name, &names));
        }
    };
    if let Some((given, _)) = fields.number("weight")? {
        weight = given;
    }
    let mut mode = Mode::Raw;
    if term.has_mode() {
        mode = fields.word("mode", &MODES)?.unwrap_or(Mode::Rank);
        let raw_is_meaningless = matches!(term, Term::Platform | Term::Reboot | Term::Random);
        if mode == Mode::Raw && raw_is_meaningless {
            return Err(Fault::new(
                at,
                format!("score {name} has no raw mode; expected rank or ratio"),
            ));
        }
    }
    Ok(Score { term, weight, mode })
}

fn fragments(fields: &mut Fields, at: usize) -> Result<Fragments, Fault> {
    let of = resource(fields.text("of")?, at)?;
    let packed = fields.flag("packed")?.unwrap_or(false);
    if let (ResourceName::Amount(resource), true) = (&of, packed) {
        let name = resource.name();
        let message = format!("packed is true, of is {name:?}; expected a set of devices");
        return Err(Fault::new(at, message));
    }
    let fed_by = amount(fields.text("fed_by")?)?;
    Ok(Fragments { of, packed, fed_by })
}

/// Returns the resources of a list `of`, each once; none without the list.
fn resources(fields: &mut Fields) -> Result<Option<Vec<ResourceName>>, Fault> {
    let Some(node) = fields.take("of") else {
        return Ok(None);
    };
    let at = node.at;
    let Value::List(nodes) = node.value else {
        return Err(wrong("of", &node, "a list of resources"));
    };
    let mut names: Vec<ResourceName> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Value::Text(text) = node.value else {
            return Err(wrong("of", &node, "a list of resources"));
        };
        let name = resource(Some((text, node.at)), at)?;
        if names.contains(&name) {
            let message = format!(
                "of names {:?} twice; expected each resource once",
                name.name()
            );
            return Err(Fault::new(node.at, message));
        }
        names.push(name);
    }
    if names.is_empty() || names.len() > 16 {
        let message = format!("of has {} resources; expected 1 to 16", names.len());
        return Err(Fault::new(at, message));
    }
    Ok(Some(names))
}

/// Returns the resource with a name, which is required.
fn resource(name: Option<(String, usize)>, at: usize) -> Result<ResourceName, Fault> {
    let expected = "expected memory, disk, containers, cpu, or the name of a set of devices or of a named resource";
    let Some((name, at)) = name else {
        return Err(Fault::new(at, format!("of is missing; {expected}")));
    };
    ResourceName::parse(&name).ok_or_else(|| Fault::new(at, format!("of is {name:?}; {expected}")))
}

/// Takes a number above 0.
fn above_0(fields: &mut Fields, key: &'static str) -> Result<Option<f64>, Fault> {
    match fields.number(key)? {
        Some((n, at)) if n <= 0.0 => {
            let message = format!("{key} is {n}; expected a number above 0");
            Err(Fault::new(at, message))
        }
        given => Ok(given.map(|(n, _)| n)),
    }
}

/// Returns one of the amounts that every cell has, by name.
fn amount(name: Option<(String, usize)>) -> Result<Option<Resource>, Fault> {
    let Some((name, at)) = name else {
        return Ok(None);
    };
    let Some(ResourceName::Amount(resource)) = ResourceName::parse(&name) else {
        let expected = "expected memory, disk, containers or cpu";
        return Err(Fault::new(at, format!("fed_by is {name:?}; {expected}")));
    };
    Ok(Some(resource))
}

fn pick(fields: &mut Fields, (name, at): (String, usize)) -> Result<Pick, Fault> {
    Ok(match name.as_str() {
        "lowest" => Pick::Lowest,
        "highest" => Pick::Highest,
        "sample" => Pick::Sample,
        "first-of" => {
            let fraction = fields.number("fraction")?.unwrap_or((0.05, at));
            if !(0.0..=1.0).contains(&fraction.0) {
                let message = format!("fraction is {}; expected 0 to 1", fraction.0);
                return Err(Fault::new(fraction.1, message));
            }
            Pick::FirstOf {
                fraction: fraction.0,
                highest: fields
                    .word("order", &[("lowest", false), ("highest", true)])?
                    .unwrap_or(false),
            }
        }
        _ => {
            let valid = ["lowest", "highest", "sample", "first-of"];
            return Err(Fault::unknown(at, "pick", &name, &valid));
        }
    })
}

fn locate(text: &str, mut fault: Fault) -> PolicyError {
    if let Some((at, error)) = inside_quotes(text, &fault) {
        let message = format!("expression: {}", error.message);
        (fault.at, fault.message) = (at, message);
    }
    let before = text.get(..fault.at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    PolicyError {
        line,
        column,
        message: fault.message,
        nearest: fault.nearest,
    }
}

/// Returns the position in the file of an error inside a text of several lines. None if the text is on one line (then
/// the column of the text is given), or has escapes.
fn inside_quotes<'a>(file: &str, fault: &'a Fault) -> Option<(usize, &'a ObjectiveError)> {
    let (text, error) = &**fault.within.as_ref()?;
    let rest = file.get(fault.at..)?;
    let rest = rest
        .strip_prefix("\"\"\"")
        .or_else(|| rest.strip_prefix("'''"))?;
    // TOML drops the first newline
    let rest = rest.strip_prefix("\r\n").unwrap_or(rest);
    let rest = rest.strip_prefix('\n').unwrap_or(rest);
    let start = file.len() - rest.len();
    let before = text.chars().take(error.column - 1);
    let offset: usize = before.map(char::len_utf8).sum();
    rest.starts_with(text.as_str())
        .then_some((start + offset, error))
}
