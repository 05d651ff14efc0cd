//! The tree as a list of stack operations, so that evaluation allocates nothing.

use super::{
    eval::Facts,
    parse::{AmountOf, Binary, Id, List, Node, OfCell, OfJob},
};
use crate::resource_name::ResourceName;

/// One operation; operands come before their operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Number(f64),
    Azs,
    Job(OfJob),
    Cell(OfCell),
    /// An amount of a resource, by its position in [`Program::resources`].
    Amount(AmountOf, usize),
    Count(Id, List),
    Negate,
    Binary(Binary),
}

/// A compiled objective.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    ops: Vec<Op>,
    resources: Vec<ResourceName>,
}

/// The deepest stack that 32 levels of three precedences can need.
const STACK: usize = 128;

impl Program {
    pub(super) fn compile(tree: &Node) -> Self {
        let mut program = Self {
            ops: Vec::new(),
            resources: Vec::new(),
        };
        program.emit(tree);
        program
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the resources that it names, each once.
    pub(crate) fn resources(&self) -> &[ResourceName] {
        &self.resources
    }

    /// Returns the value for one cell.
    pub(super) fn run(&self, facts: &Facts<'_>) -> f64 {
        let mut stack = [0.0; STACK];
        let mut top = 0;
        for op in &self.ops {
            let value = match *op {
                Op::Number(value) => value,
                Op::Azs => facts.job.azs,
                Op::Job(attribute) => facts.job.number(attribute),
                Op::Cell(attribute) => facts.number(attribute),
                Op::Amount(of, resource) => facts.amount(of, &self.resources[resource]),
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

    fn emit(&mut self, node: &Node) {
        let op = match node {
            Node::Number(value) | Node::Constant(_, value) => Op::Number(*value),
            Node::Azs => Op::Azs,
            Node::Job(attribute) => Op::Job(*attribute),
            Node::Cell(attribute) => Op::Cell(*attribute),
            Node::Amount(of, resource) => Op::Amount(*of, self.position(resource)),
            Node::Count(id, list) => Op::Count(*id, *list),
            Node::Negate(inner) => {
                self.emit(inner);
                Op::Negate
            }
            Node::Binary(op, left, right) => {
                self.emit(left);
                self.emit(right);
                Op::Binary(*op)
            }
        };
        self.ops.push(op);
    }

    fn position(&mut self, resource: &ResourceName) -> usize {
        let known = self.resources.iter().position(|known| known == resource);
        known.unwrap_or_else(|| {
            self.resources.push(resource.clone());
            self.resources.len() - 1
        })
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

/// Returns the largest whole number not above `x`. Adding and subtracting 2^52 removes the fraction by rounding; with
/// neither a branch nor a call, the compiler can vectorise it.
fn floor(x: f64) -> f64 {
    /// From here on every number is whole.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let near = ((x.abs() + WHOLE) - WHOLE).copysign(x);
    let below = if near > x { near - 1.0 } else { near };
    if x.abs() < WHOLE { below } else { x }
}

#[cfg(test)]
mod tests {
    use super::floor;

    #[test]
    fn floor_is_that_of_the_library() {
        let mut dice = 7_u64;
        for _ in 0..100_000 {
            dice = crate::random::mix(dice);
            let any = f64::from_bits(dice);
            let small = (dice >> 40) as f64 / 256.0 - 30_000.0;
            for x in [
                any,
                small,
                small.floor(),
                -small,
                0.5,
                -0.5,
                -0.0,
                f64::INFINITY,
            ] {
                let (own, library) = (floor(x), x.floor());
                let same = own.to_bits() == library.to_bits() || (own.is_nan() && library.is_nan());
                assert!(same, "{x}: {own}, not {library}");
            }
        }
    }
}
