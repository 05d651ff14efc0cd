//! What no compiler checks of this repository: the length of functions, names that stand for two
//! things, circles of imports, figures in the documents that the code has too, links, paths of somebody's
//! own machine.

mod docs;
mod imports;
mod links;
mod names;
mod sources;
