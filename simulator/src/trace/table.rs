//! Rows by field name, and errors that name file, line and column.

use std::{collections::BTreeMap, io::Read};

use csv::StringRecord;

use super::{LATEST_S, Source, TraceError, columns::Wanted};

/// A file being read.
pub(super) struct Table<R> {
    file: String,
    reader: csv::Reader<R>,
    /// By field: the column's position and name.
    columns: BTreeMap<&'static str, (usize, String)>,
    record: StringRecord,
    rows: usize,
    most: usize,
}

/// A row of a file.
pub(super) struct Row<'a> {
    file: &'a str,
    line: u64,
    columns: &'a BTreeMap<&'static str, (usize, String)>,
    record: &'a StringRecord,
}

impl<R: Read> Table<R> {
    /// Reads the header.
    pub(super) fn open(
        source: Source<'_, R>,
        wanted: &Wanted,
        most: usize,
    ) -> Result<Self, TraceError> {
        let file = source.name.to_owned();
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(source.text);
        let header = reader.headers().map_err(|e| unreadable(&file, e))?;
        let mut columns = BTreeMap::new();
        for (field, (column, required)) in wanted {
            match header.iter().position(|there| there == column) {
                Some(position) => {
                    columns.insert(*field, (position, column.clone()));
                }
                None if *required => {
                    return Err(TraceError::NoColumn {
                        file,
                        column: column.clone(),
                        field,
                        there: header.iter().collect::<Vec<_>>().join(", "),
                    });
                }
                None => {}
            }
        }
        Ok(Self {
            file,
            reader,
            columns,
            record: StringRecord::new(),
            rows: 0,
            most,
        })
    }

    /// Returns the next row; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        let more = self.reader.read_record(&mut self.record);
        if !more.map_err(|e| unreadable(&self.file, e))? {
            return Ok(None);
        }
        self.rows += 1;
        if self.rows > self.most {
            return Err(TraceError::TooLong {
                file: self.file.clone(),
                most: self.most,
            });
        }
        Ok(Some(Row {
            file: &self.file,
            line: self.record.position().map_or(0, csv::Position::line),
            columns: &self.columns,
            record: &self.record,
        }))
    }
}

fn unreadable(file: &str, e: csv::Error) -> TraceError {
    TraceError::Csv {
        file: file.to_owned(),
        source: e,
    }
}

impl Row<'_> {
    /// Returns the text of a field; empty if the field has no column.
    pub(super) fn text(&self, field: &str) -> &str {
        let column = self.columns.get(field);
        column
            .and_then(|(place, _)| self.record.get(*place))
            .unwrap_or_default()
    }

    /// Reads the name of a cell, an app or a zone.
    pub(super) fn name(&self, field: &'static str) -> Result<String, TraceError> {
        let name = self.text(field);
        placement::check_name(field, name).map_err(|e| self.wrong(field, &e.expected))?;
        Ok(name.to_owned())
    }

    /// Reads an integer from 0 to `most`; none if the column is missing or empty, unless it is required.
    pub(super) fn number(&self, field: &'static str, most: i64) -> Result<Option<i64>, TraceError> {
        let text = self.text(field);
        if text.is_empty() && !matches!(field, "cpu_milli" | "memory_mib") {
            return Ok(None);
        }
        let read = text.parse().ok().or_else(|| whole(text));
        let found = read.filter(|number| (0..=most).contains(number));
        let expected = || format!("an integer from 0 to {most}");
        found
            .map(Some)
            .ok_or_else(|| self.wrong(field, &expected()))
    }

    /// Reads seconds, with or without a fraction; none if the field is empty.
    pub(super) fn seconds(&self, field: &'static str) -> Result<Option<f64>, TraceError> {
        let text = self.text(field);
        if text.is_empty() {
            return Ok(None);
        }
        let found = text
            .parse()
            .ok()
            .filter(|seconds| (0.0..=LATEST_S).contains(seconds));
        let expected = "seconds, from 0 to a hundred years";
        found.map(Some).ok_or_else(|| self.wrong(field, expected))
    }

    /// Returns the error for this field.
    pub(super) fn wrong(&self, field: &'static str, expected: &str) -> TraceError {
        let column = self.columns.get(field).map_or(field, |(_, column)| column);
        TraceError::Value {
            file: self.file.to_owned(),
            line: self.line,
            column: column.to_owned(),
            value: self.text(field).chars().take(80).collect(),
            expected: expected.to_owned(),
        }
    }
}

/// Parses an integer that was written with a fraction of 0, such as "3.0".
fn whole(text: &str) -> Option<i64> {
    let (number, fraction) = text.split_once('.')?;
    let zeros = fraction.bytes().all(|digit| digit == b'0');
    number.parse().ok().filter(|_| zeros)
}
