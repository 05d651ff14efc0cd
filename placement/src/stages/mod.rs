//! The stages, one readable function each: the definition of what every engine must decide.

pub(crate) mod filter;
pub(crate) mod locality;
pub(crate) mod narrow;
pub(crate) mod score;
