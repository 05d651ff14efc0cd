//! Writes a file anew with all its changes in it, each behind a switch.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use anyhow::{Context, Result};
use syn::{
    Block, Expr, ExprBinary, ExprStruct, ExprUnary, Pat, ReturnType, Signature,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::change::{Change, Kind, State};

/// The module that knows what is switched on, in the changed crate.
const SWITCH: &str = "crate::mutant_switch";

/// A file with its switches, and where in it each change is.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// The code of each change, by its number, in bytes of the text. A compiler error there is its own.
    pub(crate) changes: Vec<(usize, Range<usize>)>,
    /// Where each change is chosen from, itself and the code as it was included.
    pub(crate) choices: Vec<(usize, Range<usize>)>,
}

/// What is written before and after a part of the file.
struct Edit {
    range: Range<usize>,
    before: Vec<Piece>,
    after: Vec<Piece>,
}

enum Piece {
    Text(String),
    /// The code of a change.
    Change(usize, String),
}

/// Writes `text` with the changes of this file that are to be tried. Sets the state of those that cannot
/// be. Functions in `keep_const` stay `const`, so nothing in them can be switched.
pub(crate) fn rewrite(
    text: &str,
    file: &str,
    changes: &mut [Change],
    keep_const: &BTreeSet<String>,
) -> Result<Rewritten> {
    let tree = syn::parse_file(text).with_context(|| format!("parsing {file}"))?;
    let mut pending: BTreeMap<(Kind, usize), Vec<usize>> = BTreeMap::new();
    for (number, change) in changes.iter().enumerate() {
        if change.file == file {
            let at = pending.entry((change.kind, change.range.start));
            at.or_default().push(number);
        }
    }
    let mut finder = Finder {
        text,
        pending,
        changes,
        keep_const,
        fixed: false,
        edits: Vec::new(),
    };
    finder.visit_file(&tree);
    // what is left is code that syn sees otherwise than cargo-mutants
    for number in finder.pending.into_values().flatten() {
        finder.changes[number].state = State::NotSwitchable;
    }
    let mut rewritten = Rewritten {
        text: String::new(),
        changes: Vec::new(),
        choices: Vec::new(),
    };
    let mut edits = finder.edits;
    // an outer part comes before what is in it
    edits.sort_by_key(|edit| (edit.range.start, usize::MAX - edit.range.end));
    let mut edits = edits.into_iter().peekable();
    rewritten.write(text, 0..text.len(), &mut edits);
    Ok(rewritten)
}

impl Rewritten {
    /// Writes a part of the file and all edits in it.
    fn write<I: Iterator<Item = Edit>>(
        &mut self,
        text: &str,
        range: Range<usize>,
        edits: &mut std::iter::Peekable<I>,
    ) {
        let mut at = range.start;
        while let Some(edit) = edits.next_if(|edit| edit.range.start <= range.end) {
            self.text += &text[at..edit.range.start];
            at = edit.range.end;
            let (start, own) = (self.text.len(), edit.changes());
            self.pieces(edit.before);
            self.write(text, edit.range, edits);
            self.pieces(edit.after);
            let whole = start..self.text.len();
            let own = own.into_iter().map(|number| (number, whole.clone()));
            self.choices.extend(own);
        }
        self.text += &text[at..range.end];
    }

    fn pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let start = self.text.len();
            match piece {
                Piece::Text(text) => self.text += &text,
                Piece::Change(number, text) => {
                    self.text += &text;
                    self.changes.push((number, start..self.text.len()));
                }
            }
        }
    }
}

struct Finder<'a> {
    text: &'a str,
    /// The changes that were not found yet, by where they start.
    pending: BTreeMap<(Kind, usize), Vec<usize>>,
    changes: &'a mut [Change],
    keep_const: &'a BTreeSet<String>,
    /// Whether this is a constant or a pattern.
    fixed: bool,
    edits: Vec<Edit>,
}

impl Finder<'_> {
    /// The changes of this kind that start here and can be tried.
    fn take(&mut self, kind: Kind, start: usize) -> Vec<usize> {
        let mut found = self.pending.remove(&(kind, start)).unwrap_or_default();
        if self.fixed {
            self.give_up(&found, State::NotSwitchable);
        }
        found.retain(|number| self.changes[*number].state == State::Tried);
        found
    }

    fn give_up(&mut self, numbers: &[usize], state: State) {
        for number in numbers {
            self.changes[*number].state = state;
        }
    }

    fn source(&self, node: &impl Spanned) -> &str {
        &self.text[bytes(node)]
    }

    /// An expression that is one of these instead when one of them is switched on.
    fn choice(&mut self, range: Range<usize>, choices: &[(usize, String)]) {
        if choices.is_empty() {
            return;
        }
        let mut after = Vec::new();
        for (place, (number, code)) in choices.iter().enumerate() {
            let condition = if place + 1 == choices.len() {
                String::new()
            } else {
                format!("if {SWITCH}::on({number}) ")
            };
            after.push(Piece::Text(format!(" }} else {condition}{{ ")));
            after.push(Piece::Change(*number, code.clone()));
        }
        after.push(Piece::Text(" })".to_owned()));
        let off = all_off(choices.iter().map(|(number, _)| *number));
        let before = vec![Piece::Text(format!("(if {off} {{ "))];
        self.edits.push(Edit {
            range,
            before,
            after,
        });
    }

    fn function(&mut self, signature: &Signature, body: &Block) {
        let body_range = bytes(body);
        let start = (Kind::FnValue, body_range.start);
        let values: Vec<usize> = self
            .pending
            .range(start..=(Kind::FnValue, body_range.end))
            .map(|((_, start), _)| *start)
            .collect();
        let values: Vec<usize> = values
            .into_iter()
            .flat_map(|start| self.take(Kind::FnValue, start))
            .collect();
        // an early return of another type than the body's
        if matches!(&signature.output, ReturnType::Type(_, result) if self.source(result).contains("impl "))
        {
            self.give_up(&values, State::NotSwitchable);
            return;
        }
        let at = body_range.start + 1;
        for number in values {
            let code = format!("return {};", self.changes[number].replacement);
            let before = vec![
                Piece::Text(format!(" if {SWITCH}::on({number}) {{ ")),
                Piece::Change(number, code),
                Piece::Text(" }".to_owned()),
            ];
            let after = Vec::new();
            self.edits.push(Edit {
                range: at..at,
                before,
                after,
            });
        }
    }

    /// Visits a function's body; `const` is taken from a function in which something is switched.
    fn in_function(&mut self, signature: &Signature, body: &Block, visit: impl FnOnce(&mut Self)) {
        let stays_const =
            signature.constness.is_some() && self.keep_const.contains(&signature.ident.to_string());
        let outer = std::mem::replace(&mut self.fixed, stays_const);
        let first = self.edits.len();
        visit(self);
        self.function(signature, body);
        self.fixed = outer;
        let Some(constness) = &signature.constness else {
            return;
        };
        if self.edits.len() > first {
            self.edits.push(Edit {
                range: bytes(constness),
                before: vec![Piece::Text("/*".to_owned())],
                after: vec![Piece::Text("*/".to_owned())],
            });
        }
    }

    /// Visits what is not run but known to the compiler.
    fn in_fixed(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.fixed, true);
        visit(self);
        self.fixed = outer;
    }

    fn binary(&mut self, node: &ExprBinary) {
        let numbers = self.take(Kind::BinaryOperator, bytes(&node.op).start);
        if has_let(&node.left) || has_let(&node.right) {
            // `let` in a condition knows no other operator than `&&`
            self.give_up(&numbers, State::DoesNotCompile);
            return;
        }
        let (left, right) = (self.source(&node.left), self.source(&node.right));
        let with = |number: usize| {
            let operator = &self.changes[number].replacement;
            (number, format!("({left}) {operator} ({right})"))
        };
        let choices: Vec<_> = numbers.into_iter().map(with).collect();
        self.choice(bytes(node), &choices);
    }

    fn unary(&mut self, node: &ExprUnary) {
        let numbers = self.take(Kind::UnaryOperator, bytes(&node.op).start);
        let operand = self.source(&node.expr);
        let with = |number: usize| {
            let operator = &self.changes[number].replacement;
            (number, format!("{operator}({operand})"))
        };
        let choices: Vec<_> = numbers.into_iter().map(with).collect();
        self.choice(bytes(node), &choices);
    }

    fn fields(&mut self, node: &ExprStruct) {
        let mut choices = Vec::new();
        for field in &node.fields {
            let numbers = self.take(Kind::StructField, bytes(field).start);
            let others = node
                .fields
                .iter()
                .filter(|other| other.member != field.member);
            let mut parts: Vec<String> =
                others.map(|other| self.source(other).to_owned()).collect();
            if let Some(rest) = &node.rest {
                parts.push(format!("..{}", self.source(rest)));
            }
            let code = format!("{} {{ {} }}", self.source(&node.path), parts.join(", "));
            choices.extend(numbers.into_iter().map(|number| (number, code.clone())));
        }
        self.choice(bytes(node), &choices);
    }

    fn arm(&mut self, node: &syn::Arm) {
        let whole = bytes(&node.pat).start;
        let mut removed = self.take(Kind::MatchArm, whole);
        removed.extend(self.take(Kind::MatchArm, bytes(node).start));
        let off = all_off(removed.iter().copied());
        let Pat::Guard(guarded) = &node.pat else {
            if let [number] = removed[..] {
                let end = bytes(&node.pat).end;
                let before = vec![Piece::Change(number, format!(" if {off}"))];
                let after = Vec::new();
                self.edits.push(Edit {
                    range: end..end,
                    before,
                    after,
                });
            }
            return;
        };
        let range = bytes(&guarded.guard);
        if let [number] = removed[..] {
            let before = vec![Piece::Change(number, format!("{off} && ("))];
            let after = vec![Piece::Text(")".to_owned())];
            self.edits.push(Edit {
                range: range.clone(),
                before,
                after,
            });
        }
        let numbers = self.take(Kind::MatchArmGuard, range.start);
        let with = |number: usize| (number, self.changes[number].replacement.clone());
        let choices: Vec<_> = numbers.into_iter().map(with).collect();
        self.choice(range, &choices);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.in_function(&node.sig, &node.block, |v| visit::visit_item_fn(v, node));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.in_function(&node.sig, &node.block, |v| {
            visit::visit_impl_item_fn(v, node);
        });
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        let Some(body) = &node.default else { return };
        self.in_function(&node.sig, body, |v| visit::visit_trait_item_fn(v, node));
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        self.in_fixed(|v| visit::visit_item_const(v, node));
    }

    fn visit_item_static(&mut self, node: &'ast syn::ItemStatic) {
        self.in_fixed(|v| visit::visit_item_static(v, node));
    }

    fn visit_impl_item_const(&mut self, node: &'ast syn::ImplItemConst) {
        self.in_fixed(|v| visit::visit_impl_item_const(v, node));
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
        self.in_fixed(|v| v.visit_expr(&node.len));
    }

    fn visit_type(&mut self, node: &'ast syn::Type) {
        self.in_fixed(|v| visit::visit_type(v, node));
    }

    fn visit_variant(&mut self, node: &'ast syn::Variant) {
        self.in_fixed(|v| visit::visit_variant(v, node));
    }

    fn visit_pat(&mut self, node: &'ast Pat) {
        if let Pat::Guard(guarded) = node {
            self.visit_pat(&guarded.pat);
            self.visit_expr(&guarded.guard);
        } else {
            self.in_fixed(|v| visit::visit_pat(v, node));
        }
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        self.arm(node);
        visit::visit_arm(self, node);
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        match node {
            Expr::Binary(node) => self.binary(node),
            Expr::Unary(node) => self.unary(node),
            Expr::Struct(node) => self.fields(node),
            _ => {}
        }
        visit::visit_expr(self, node);
    }
}

impl Edit {
    /// The numbers of its changes.
    fn changes(&self) -> Vec<usize> {
        let pieces = self.before.iter().chain(&self.after);
        let numbers = pieces.filter_map(|piece| match piece {
            Piece::Change(number, _) => Some(*number),
            Piece::Text(_) => None,
        });
        numbers.collect()
    }
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// The condition that none of these is switched on.
fn all_off(numbers: impl Iterator<Item = usize>) -> String {
    let mut conditions: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match conditions.last_mut() {
            Some((_, to)) if *to == number => *to += 1,
            _ => conditions.push((number, number + 1)),
        }
    }
    let texts = conditions
        .iter()
        .map(|(from, to)| format!("{SWITCH}::off({from}, {to})"));
    texts.collect::<Vec<_>>().join(" && ")
}

/// Whether this is a condition with `let`.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with one change, of the first place where `part` is, after `rewrite`.
    fn with(text: &str, kind: Kind, part: &str, replacement: &str) -> (String, Vec<Change>) {
        let start = text.find(part).expect("the part is in the text");
        let mut changes = vec![Change {
            file: "f.rs".to_owned(),
            range: start..start + part.len(),
            replacement: replacement.to_owned(),
            kind,
            name: String::new(),
            state: State::Tried,
        }];
        let new = rewrite(
            text,
            "f.rs",
            &mut changes,
            &BTreeSet::from(["kept".to_owned()]),
        );
        let new = new.expect("the text can be parsed");
        syn::parse_file(&new.text).unwrap_or_else(|error| panic!("{error} in {}", new.text));
        for (number, range) in &new.changes {
            assert_eq!(*number, 0);
            assert!(new.choices.iter().any(|(_, whole)| whole.end >= range.end));
        }
        (new.text.replace("crate::mutant_switch::", ""), changes)
    }

    #[track_caller]
    fn becomes(text: &str, kind: Kind, part: &str, replacement: &str, expected: &str) {
        let (new, changes) = with(text, kind, part, replacement);
        assert_eq!(new, expected);
        assert_eq!(changes[0].state, State::Tried);
    }

    #[track_caller]
    fn stays(text: &str, kind: Kind, part: &str, replacement: &str, state: State) {
        let (new, changes) = with(text, kind, part, replacement);
        assert_eq!((new.as_str(), changes[0].state), (text, state));
    }

    #[test]
    fn operators_are_chosen_from() {
        becomes(
            "fn f() { ü(a < b + 1) }",
            Kind::BinaryOperator,
            "<",
            "<=",
            "fn f() { ü((if off(0, 1) { a < b + 1 } else { (a) <= (b + 1) })) }",
        );
        becomes(
            "fn f() { n += 1; }",
            Kind::BinaryOperator,
            "+=",
            "-=",
            "fn f() { (if off(0, 1) { n += 1 } else { (n) -= (1) }); }",
        );
        becomes(
            "fn f() -> bool { !x }",
            Kind::UnaryOperator,
            "!",
            "",
            "fn f() -> bool { (if off(0, 1) { !x } else { (x) }) }",
        );
    }

    #[test]
    fn a_function_returns_a_value_at_once() {
        becomes(
            "fn f() -> u8 { 1 }",
            Kind::FnValue,
            "1",
            "0",
            "fn f() -> u8 { if on(0) { return 0; } 1 }",
        );
        stays(
            "fn f() -> impl Sized { 1 }",
            Kind::FnValue,
            "1",
            "0",
            State::NotSwitchable,
        );
    }

    #[test]
    fn arms_guards_and_fields_are_switched() {
        becomes(
            "fn f() { match x { 1 => 2, _ => 3 } }",
            Kind::MatchArm,
            "1 => 2",
            "",
            "fn f() { match x { 1 if off(0, 1) => 2, _ => 3 } }",
        );
        becomes(
            "fn f() { match x { y if y > 1 => 2, _ => 3 } }",
            Kind::MatchArm,
            "y if",
            "",
            "fn f() { match x { y if off(0, 1) && (y > 1) => 2, _ => 3 } }",
        );
        becomes(
            "fn f() { match x { y if y > 1 => 2, _ => 3 } }",
            Kind::MatchArmGuard,
            "y > 1",
            "true",
            "fn f() { match x { y if (if off(0, 1) { y > 1 } else { true }) => 2, _ => 3 } }",
        );
        becomes(
            "fn f() { S { a: 1, b, ..d } }",
            Kind::StructField,
            "a: 1",
            "",
            "fn f() { (if off(0, 1) { S { a: 1, b, ..d } } else { S { b, ..d } }) }",
        );
    }

    #[test]
    fn what_the_compiler_must_know_is_not_switched() {
        let state = State::NotSwitchable;
        stays(
            "const N: u8 = 1 + 2;",
            Kind::BinaryOperator,
            "+",
            "-",
            state,
        );
        stays(
            "fn f(x: [u8; 1 + 2]) {}",
            Kind::BinaryOperator,
            "+",
            "-",
            state,
        );
        stays(
            "const fn kept() -> u8 { 1 + 2 }",
            Kind::BinaryOperator,
            "+",
            "-",
            state,
        );
        let condition = "fn f() { if let 1 = x && y {} }";
        stays(
            condition,
            Kind::BinaryOperator,
            "&&",
            "||",
            State::DoesNotCompile,
        );
        becomes(
            "const fn f() -> u8 { 1 + 2 }",
            Kind::BinaryOperator,
            "+",
            "-",
            "/*const*/ fn f() -> u8 { (if off(0, 1) { 1 + 2 } else { (1) - (2) }) }",
        );
    }

    #[test]
    fn a_change_in_another_is_switched_there() {
        let text = "fn f() { a < b + c }";
        let at = |part: &str, replacement: &str| Change {
            file: "f.rs".to_owned(),
            range: text.find(part).expect("it is there")..text.len(),
            replacement: replacement.to_owned(),
            kind: Kind::BinaryOperator,
            name: String::new(),
            state: State::Tried,
        };
        let mut changes = [at("<", ">"), at("<", "=="), at("+", "-")];
        let new = rewrite(text, "f.rs", &mut changes, &BTreeSet::new()).expect("it parses");
        assert_eq!(
            new.text.replace("crate::mutant_switch::", ""),
            "fn f() { (if off(0, 2) { a < (if off(2, 3) { b + c } else { (b) - (c) }) } \
             else if on(0) { (a) > (b + c) } else { (a) == (b + c) }) }"
        );
    }
}
