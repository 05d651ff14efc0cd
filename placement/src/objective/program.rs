//! The tree as a list of operations on a stack, so that nothing is allocated while it runs.

use super::{
    eval::Facts,
    parse::{Binary, Id, List, Node, OfCell, OfJob},
};

/// One operation; operands come before their operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Number(f64),
    Azs,
    Job(OfJob),
    Cell(OfCell),
    Count(Id, List),
    Negate,
    Binary(Binary),
}

/// A compiled objective.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    ops: Vec<Op>,
}

/// The deepest stack that 32 levels of three precedences can need.
const STACK: usize = 128;

impl Program {
    pub(super) fn compile(tree: &Node) -> Self {
        let mut ops = Vec::new();
        emit(tree, &mut ops);
        Self { ops }
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The value for one cell.
    pub(super) fn run(&self, facts: &Facts<'_>) -> f64 {
        let mut stack = [0.0; STACK];
        let mut top = 0;
        for op in &self.ops {
            let value = match *op {
                Op::Number(value) => value,
                Op::Azs => facts.job.azs,
                Op::Job(attribute) => facts.job.number(attribute),
                Op::Cell(attribute) => facts.number(attribute),
                Op::Count(id, list) => facts.count(id, list),
                Op::Negate => {
                    top -= 1;
                    -stack[top]
                }
                Op::Binary(op) => {
                    top -= 2;
                    apply(op, stack[top], stack[top + 1])
                }
            };
            stack[top] = value;
            top += 1;
        }
        stack[0]
    }
}

fn emit(node: &Node, ops: &mut Vec<Op>) {
    match node {
        Node::Number(value) | Node::Constant(_, value) => ops.push(Op::Number(*value)),
        Node::Azs => ops.push(Op::Azs),
        Node::Job(attribute) => ops.push(Op::Job(*attribute)),
        Node::Cell(attribute) => ops.push(Op::Cell(*attribute)),
        Node::Count(id, list) => ops.push(Op::Count(*id, *list)),
        Node::Negate(inner) => {
            emit(inner, ops);
            ops.push(Op::Negate);
        }
        Node::Binary(op, left, right) => {
            emit(left, ops);
            emit(right, ops);
            ops.push(Op::Binary(*op));
        }
    }
}

pub(crate) fn apply(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Modulo => a - b * floor(a / b),
    }
}

/// The largest whole number not above `x`. The usual range goes through an integer, which every
/// processor has an instruction for; the library's own is a call on many.
#[allow(clippy::cast_possible_truncation)] // below 2^52 it is exact
fn floor(x: f64) -> f64 {
    if x.abs() < 4_503_599_627_370_496.0 {
        let whole = x as i64 as f64;
        whole - f64::from(u8::from(whole > x))
    } else {
        x.floor()
    }
}
