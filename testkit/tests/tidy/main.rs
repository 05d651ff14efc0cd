//! Checks that no compiler makes: the length of functions, names that stand for two things, cycles of imports, figures
//! in documents that are also in the code, links, and paths on somebody's own machine.

mod docs;
mod imports;
mod links;
mod names;
mod sources;
