//! The machines under a clock of the test's own.

mod admission;
mod answers;
mod auction;
mod feed;
mod flow;
mod questions;
mod random;
mod repeats;
mod stops;
mod world;
