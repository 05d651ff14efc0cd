//! The machines under a clock of the test's own.

mod admission;
mod answers;
mod auction;
mod claims;
mod compared;
mod contested;
mod debits;
mod devices;
mod due;
mod events;
mod feed;
mod forged;
mod full_pool;
mod given_ids;
mod held;
mod listings;
mod lookups;
mod lost_cells;
mod missed;
mod pool_time;
mod questions;
mod random;
mod shares;
mod stops;
mod watched;
mod world;
