//! Evaluates the objective for a block of cells at a time: what depends only on the job is computed once, the rest is
//! computed operation by operation over short columns that stay in the processor's cache.

use crate::objective::{AmountOf, Binary, Id, JobFacts, List, OfCell, Op, Program, apply};

/// The number of cells in a block.
const BLOCK: usize = 256;

/// Where a value of a cell comes from: a column, or one value for all cells.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Same(f64),
    Column(&'a [f64]),
}

/// The inputs of an expression.
pub(super) struct Inputs<'a> {
    pub(super) of_cell: &'a dyn Fn(OfCell) -> Source<'a>,
    pub(super) amount: &'a dyn Fn(AmountOf, usize) -> Source<'a>,
    pub(super) count: &'a dyn Fn(Id, List) -> Source<'a>,
}

/// An operand or result while the program is read.
#[derive(Clone, Copy)]
enum Value<'a> {
    Same(f64),
    Column(&'a [f64]),
    /// A block on the stack.
    Block(usize),
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Negate(Value<'a>, usize),
    Apply(Binary, Value<'a>, Value<'a>, usize),
}

/// Blocks for intermediate values, reused from job to job.
#[derive(Default)]
pub(super) struct Blocks {
    stack: Vec<[f64; BLOCK]>,
}

/// Writes the program's value for each of `cells` (all cells if none are given) to `out`.
pub(super) fn evaluate(
    program: &Program,
    job: &JobFacts,
    inputs: &Inputs<'_>,
    cells: Option<&[u32]>,
    blocks: &mut Blocks,
    out: &mut [f64],
) {
    let (steps, result) = plan(program, job, inputs);
    let depth = steps.iter().map(|step| match step {
        Step::Negate(_, to) | Step::Apply(.., to) => to + 1,
    });
    // one more for gathered operands
    let depth = depth.max().unwrap_or(0);
    blocks.stack.resize(depth + 1, [0.0; BLOCK]);
    for start in (0..out.len()).step_by(BLOCK) {
        let end = out.len().min(start + BLOCK);
        for step in &steps {
            run(step, cells, start..end, &mut blocks.stack, depth);
        }
        // the last block is free: only a gathered operand is ever stored there
        let (stack, gathered) = blocks.stack.split_at_mut(depth);
        let values = read(result, cells, start..end, stack, &mut gathered[0]);
        match values {
            Operand::Same(value) => out[start..end].fill(value),
            Operand::Many(values) => out[start..end].copy_from_slice(&values[..end - start]),
        }
    }
}

/// Computes what is the same for all cells, and returns the remaining steps and the result.
fn plan<'a>(program: &Program, job: &JobFacts, inputs: &Inputs<'a>) -> (Vec<Step<'a>>, Value<'a>) {
    let mut steps = Vec::new();
    let mut values: Vec<Value<'a>> = Vec::new();
    let of = |source| match source {
        Source::Same(value) => Value::Same(value),
        Source::Column(column) => Value::Column(column),
    };
    for op in program.ops() {
        let value = match *op {
            Op::Number(value) => Value::Same(value),
            Op::Azs => Value::Same(job.azs),
            Op::Job(attribute) => Value::Same(job.number(attribute)),
            Op::Cell(attribute) => of((inputs.of_cell)(attribute)),
            Op::Amount(kind, resource) => of((inputs.amount)(kind, resource)),
            Op::Count(id, list) => of((inputs.count)(id, list)),
            Op::Negate => match values.pop() {
                Some(Value::Same(value)) => Value::Same(-value),
                Some(value) => {
                    steps.push(Step::Negate(value, values.len()));
                    Value::Block(values.len())
                }
                None => Value::Same(f64::NAN),
            },
            Op::Binary(op) => match (values.pop(), values.pop()) {
                // the same operation as for a cell, so the same bits
                (Some(Value::Same(b)), Some(Value::Same(a))) => Value::Same(apply(op, a, b)),
                // popped in reverse: the right operand is on top
                (Some(b), Some(a)) => {
                    steps.push(Step::Apply(op, a, b, values.len()));
                    Value::Block(values.len())
                }
                _ => Value::Same(f64::NAN),
            },
        };
        values.push(value);
    }
    (steps, values.pop().unwrap_or(Value::Same(f64::NAN)))
}

enum Operand<'a> {
    Same(f64),
    Many(&'a [f64]),
}

/// Returns the operand's values for the cells of a block, gathered if only some cells are requested.
fn read<'a>(
    value: Value<'a>,
    cells: Option<&[u32]>,
    range: std::ops::Range<usize>,
    stack: &'a [[f64; BLOCK]],
    gathered: &'a mut [f64; BLOCK],
) -> Operand<'a> {
    match (value, cells) {
        (Value::Same(value), _) => Operand::Same(value),
        (Value::Block(at), _) => Operand::Many(&stack[at]),
        (Value::Column(column), None) => Operand::Many(&column[range]),
        (Value::Column(column), Some(cells)) => {
            for (to, position) in gathered.iter_mut().zip(&cells[range]) {
                *to = column[*position as usize];
            }
            Operand::Many(&gathered[..])
        }
    }
}

fn run(
    step: &Step<'_>,
    cells: Option<&[u32]>,
    range: std::ops::Range<usize>,
    stack: &mut [[f64; BLOCK]],
    depth: usize,
) {
    let length = range.len();
    let (stack, gathered) = stack.split_at_mut(depth);
    match *step {
        Step::Negate(value, to) => {
            load(value, cells, range, &mut stack[to]);
            for value in &mut stack[to][..length] {
                *value = -*value;
            }
        }
        Step::Apply(op, a, b, to) => {
            // a left operand that is a block is where the result goes, a right one just above
            let (left, right) = stack.split_at_mut(to + 1);
            let result = &mut left[to];
            let b = match b {
                Value::Block(_) => Operand::Many(&right[0]),
                other => read(other, cells, range.clone(), &[], &mut gathered[0]),
            };
            let a = match (a, cells) {
                (Value::Same(a), _) => Left::Same(a),
                (Value::Column(column), None) => Left::Many(&column[range.clone()]),
                _ => {
                    load(a, cells, range, result);
                    Left::Here
                }
            };
            let result = &mut result[..length];
            match op {
                Binary::Add => each(result, &a, &b, |a, b| a + b),
                Binary::Subtract => each(result, &a, &b, |a, b| a - b),
                Binary::Multiply => each(result, &a, &b, |a, b| a * b),
                Binary::Divide => each(result, &a, &b, |a, b| a / b),
                Binary::Modulo => each(result, &a, &b, |a, b| apply(Binary::Modulo, a, b)),
            }
        }
    }
}

/// Puts an operand where the result goes; a block is already there.
fn load(
    value: Value<'_>,
    cells: Option<&[u32]>,
    range: std::ops::Range<usize>,
    to: &mut [f64; BLOCK],
) {
    match (value, cells) {
        (Value::Block(_), _) => {}
        (Value::Same(value), _) => to[..range.len()].fill(value),
        (Value::Column(column), None) => to[..range.len()].copy_from_slice(&column[range]),
        (Value::Column(column), Some(cells)) => {
            for (to, position) in to.iter_mut().zip(&cells[range]) {
                *to = column[*position as usize];
            }
        }
    }
}

/// A left operand.
enum Left<'a> {
    /// It is already where the result goes.
    Here,
    Same(f64),
    Many(&'a [f64]),
}

/// Applies an operation with one loop per kind of operands, so that the compiler can vectorise each.
fn each(result: &mut [f64], a: &Left<'_>, b: &Operand<'_>, op: impl Fn(f64, f64) -> f64) {
    let results = result.iter_mut();
    match (a, b) {
        (Left::Here, Operand::Same(b)) => results.for_each(|r| *r = op(*r, *b)),
        (Left::Here, Operand::Many(b)) => results.zip(*b).for_each(|(r, b)| *r = op(*r, *b)),
        (Left::Same(a), Operand::Same(b)) => results.for_each(|r| *r = op(*a, *b)),
        (Left::Same(a), Operand::Many(b)) => results.zip(*b).for_each(|(r, b)| *r = op(*a, *b)),
        (Left::Many(a), Operand::Same(b)) => results.zip(*a).for_each(|(r, a)| *r = op(*a, *b)),
        (Left::Many(a), Operand::Many(b)) => {
            let pairs = a.iter().zip(*b);
            results.zip(pairs).for_each(|(r, (a, b))| *r = op(*a, *b));
        }
    }
}
