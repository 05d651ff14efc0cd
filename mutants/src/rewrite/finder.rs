//! Walks through the code of a file and puts every change behind a switch where possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use syn::{
    Block, Expr, ExprBinary, ExprStruct, ExprUnary, Pat, ReturnType, Signature,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::edit::{Edit, Piece};
use crate::change::{Change, Kind, State};

/// The module, in the changed crate, that knows what is switched on.
const SWITCH: &str = "crate::mutant_switch";

/// What is still to be found, and the edits for what was found.
pub(super) struct Finder<'a> {
    pub(super) text: &'a str,
    /// The changes that were not found yet, by their start.
    pub(super) pending: BTreeMap<(Kind, usize), Vec<usize>>,
    pub(super) changes: &'a mut [Change],
    pub(super) keep_const: &'a BTreeSet<String>,
    /// Whether the visited code is a constant or a pattern.
    pub(super) fixed: bool,
    pub(super) edits: Vec<Edit>,
}

impl Finder<'_> {
    /// Takes the changes of this kind that start here and can be tried.
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

    /// Turns an expression into a choice: if one of these changes is switched on, it is evaluated instead.
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
        // an early return of a type other than the body's
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

    /// Visits a function's body; `const` is removed from a function in which something is switched.
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

    /// Visits code that is not run but evaluated by the compiler.
    fn in_fixed(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.fixed, true);
        visit(self);
        self.fixed = outer;
    }

    fn binary(&mut self, node: &ExprBinary) {
        let numbers = self.take(Kind::BinaryOperator, bytes(&node.op).start);
        if has_let(&node.left) || has_let(&node.right) {
            // `let` in a condition only allows the operator `&&`
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

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Returns the condition that none of these is switched on.
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

/// Returns whether this is a condition with `let`.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}
