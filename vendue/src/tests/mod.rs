//! Tests of things that only the program itself knows.

mod operations_page;
