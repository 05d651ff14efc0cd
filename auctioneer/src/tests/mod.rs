//! The machines under a clock of the test's own.

mod admission;
mod answers;
mod auction;
mod claims;
mod contested;
mod due;
mod events;
mod feed;
mod full_pool;
mod held;
mod lookups;
mod missed;
mod pool_time;
mod questions;
mod random;
mod shares;
mod stops;
mod watched;
mod world;
