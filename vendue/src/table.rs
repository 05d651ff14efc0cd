//! Tables that fit the terminal they are printed on.
//!
//! If standard output is not a terminal, every column is printed in full, with one line per row. On a terminal, as long
//! as the table is too wide, columns are left out in the order that the table states; then the table's text column is
//! wrapped. Names are never cut, so that they can be copied: if they alone are too wide, each row is printed as a list
//! of its columns.

use std::io;

use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, Width, presets};

use crate::{
    output::{note_wrapped, say},
    terminal::{colours, width},
};

/// Number of blanks between two columns.
const GAP: usize = 2;
/// A text column is never wrapped to fewer columns of the terminal than this.
const MIN_TEXT_WIDTH: usize = 24;

/// Rows under a header, and how they may be narrowed.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Row>,
    optional: &'static [&'static str],
    text: Option<&'static str>,
}

/// A table as it is printed.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    text: String,
    left_out: Vec<&'static str>,
}

impl Table {
    /// Creates an empty table.
    pub(crate) fn new<S: ToString>(header: &[S]) -> Self {
        Self {
            header: header.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            optional: &[],
            text: None,
        }
    }

    /// Sets the columns that are left out on a narrow terminal, in this order.
    pub(crate) fn optional(mut self, columns: &'static [&'static str]) -> Self {
        self.optional = columns;
        self
    }

    /// Sets the column of sentences, which is wrapped on a narrow terminal.
    pub(crate) fn text(mut self, column: &'static str) -> Self {
        self.text = Some(column);
        self
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add_row(&mut self, row: impl Into<Row>) {
        self.rows.push(row.into());
    }

    /// Prints it, and reports on standard error which columns were left out.
    pub(crate) fn print(self) -> io::Result<()> {
        let layout = self.layout(width(), colours());
        say(layout.text)?;
        if !layout.left_out.is_empty() {
            let columns = layout.left_out.join(", ");
            note_wrapped(&format!("not shown: {columns} (--wide shows all)"));
        }
        Ok(())
    }

    /// Returns the table for a terminal of this width; none = unlimited.
    fn layout(self, width: Option<usize>, colour: bool) -> Layout {
        let mut table = plain(colour);
        table.set_header(self.header.clone());
        table.add_rows(self.rows);
        set_gaps(&mut table);
        let mut columns: Vec<(&str, usize)> = Vec::new();
        for (name, content) in self.header.iter().zip(table.column_max_content_widths()) {
            columns.push((name, usize::from(content)));
        }
        let left_out = width.map_or(Vec::new(), |width| {
            too_many(&columns, width, self.optional, self.text)
        });
        let shown = |name: &str| !left_out.contains(&name);
        for (name, column) in self.header.iter().zip(table.column_iter_mut()) {
            if !shown(name) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        columns.retain(|(name, _)| shown(name));
        let least = needed(&narrowest(&columns, self.text));
        if width.is_some_and(|width| least > width) && table.row_count() > 0 {
            return Layout {
                text: listed(&self.header, table.row_iter(), colour),
                left_out: Vec::new(),
            };
        }
        if let (Some(width), Some(text)) = (width.filter(|w| needed(&columns) > *w), self.text) {
            let others: usize = columns
                .iter()
                .filter(|c| c.0 != text)
                .map(|c| c.1 + GAP)
                .sum();
            let rest = width.saturating_sub(others).max(MIN_TEXT_WIDTH);
            let rest = u16::try_from(rest + GAP).unwrap_or(u16::MAX);
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::MAX);
            let index = self.header.iter().position(|name| *name == text);
            if let Some(column) = index.and_then(|i| table.column_mut(i)) {
                column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(rest)));
            }
        }
        Layout {
            text: table.trim_fmt(),
            left_out,
        }
    }
}

/// Formats one line per column of each row, with an empty line between rows.
fn listed<'a>(header: &[String], rows: impl Iterator<Item = &'a Row>, colour: bool) -> String {
    let list = |row: &Row| {
        let mut list = plain(colour);
        for (name, cell) in header.iter().zip(row.cell_iter()) {
            list.add_row([Cell::new(name), cell.clone()]);
        }
        set_gaps(&mut list);
        list.trim_fmt()
    };
    rows.map(list).collect::<Vec<_>>().join("\n\n")
}

/// Puts two blanks between the remaining columns.
fn set_gaps(table: &mut comfy_table::Table) {
    for column in table.column_iter_mut() {
        column.set_padding((0, u16::try_from(GAP).unwrap_or(0)));
    }
}

/// Creates a table without lines.
fn plain(colour: bool) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// Returns the columns with the widths to which they may be wrapped.
fn narrowest<'a>(columns: &[(&'a str, usize)], text: Option<&str>) -> Vec<(&'a str, usize)> {
    let narrowest = |(name, content): &(&'a str, usize)| {
        let wrapped = Some(*name) == text;
        let most = if wrapped { MIN_TEXT_WIDTH } else { usize::MAX };
        (*name, (*content).min(most))
    };
    columns.iter().map(narrowest).collect()
}

/// Returns the width of a table with these columns.
fn needed(columns: &[(&str, usize)]) -> usize {
    let gaps = GAP * columns.len().saturating_sub(1);
    columns.iter().map(|(_, width)| width).sum::<usize>() + gaps
}

/// Returns the optional columns to leave out until the others fit; a text column counts with the width to which it can
/// be wrapped.
fn too_many(
    columns: &[(&str, usize)],
    width: usize,
    optional: &'static [&'static str],
    text: Option<&str>,
) -> Vec<&'static str> {
    let mut kept = narrowest(columns, text);
    let mut left_out = Vec::new();
    for name in optional {
        if needed(&kept) <= width {
            break;
        }
        kept.retain(|(kept, _)| kept != name);
        left_out.push(*name);
    }
    left_out
}

#[cfg(test)]
mod tests {
    use comfy_table::Color;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["CELL", "ZONE", "MEMORY", "HEARD", "WHY"])
            .optional(&["HEARD", "ZONE"])
            .text("WHY");
        let why = "memory: 3 cells dropped, needs 900 MiB, the best has 100 MiB";
        table.add_row(["z1-cell-0", "z1", "100/1024 MiB", "850ms ago", why]);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(str::len).max().unwrap()
    }

    #[test]
    fn without_a_terminal_a_row_is_a_line() {
        let layout = table().layout(None, false);
        assert_eq!(layout.text.lines().count(), 2, "{}", layout.text);
        assert_eq!(layout.left_out, [""; 0]);
        let lines: Vec<&str> = layout.text.lines().collect();
        assert!(lines.iter().all(|line| !line.ends_with(' ')));
        assert!(lines[0].starts_with("CELL       ZONE  MEMORY        HEARD      WHY"));
    }

    #[test]
    fn on_a_narrow_terminal_columns_are_left_out_in_order_and_text_is_wrapped() {
        for (width, left_out, lines) in [
            (120, &[][..], 2),
            (80, &[], 3),
            (60, &["HEARD"], 4),
            (52, &["HEARD", "ZONE"], 4),
        ] {
            let layout = table().layout(Some(width), false);
            assert_eq!(layout.left_out, left_out, "{width}: {}", layout.text);
            assert!(widest(&layout.text) <= width, "{width}: {}", layout.text);
            assert_eq!(
                layout.text.lines().count(),
                lines,
                "{width}: {}",
                layout.text
            );
        }
    }

    #[test]
    fn names_are_never_cut() {
        let mut table = table();
        table.add_row(["z1-cell-1", "z1", "1/1 MiB", "-", "-"]);
        let layout = table.layout(Some(40), false);
        let expected = "CELL    z1-cell-0\nZONE    z1\nMEMORY  100/1024 MiB\nHEARD   850ms ago\nWHY     \
            memory: 3 cells dropped, needs 900 MiB, the best has 100 MiB\n\nCELL    z1-cell-1\nZONE    z1\n\
            MEMORY  1/1 MiB\nHEARD   -\nWHY     -";
        assert_eq!(layout.text, expected);
        assert_eq!(layout.left_out, [""; 0]);
        let empty = Table::new(&["A LONG NAME", "ANOTHER LONG NAME"]).layout(Some(20), false);
        assert_eq!(empty.text, "A LONG NAME  ANOTHER LONG NAME");
    }

    #[test]
    fn colours_are_where_they_are_wanted_only() {
        let coloured = |colour| {
            let mut table = Table::new(&["STATE"]);
            table.add_row([Cell::new("crashed").fg(Color::Red)]);
            table.layout(None, colour).text.contains('\u{1b}')
        };
        assert_eq!([true, false].map(coloured), [true, false]);
    }
}
