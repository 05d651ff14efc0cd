//! The machines under a clock of the test's own.

mod answers;
mod auction;
mod door;
mod feed;
mod flow;
mod questions;
mod random;
mod repeats;
mod stops;
mod world;
