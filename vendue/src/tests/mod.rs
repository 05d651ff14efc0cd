//! Tests of what only the program knows.

mod operations_page;
