//! Replaced parts of a file, and the file with all of them.

use std::{iter::Peekable, ops::Range};

/// A file with its switches, and the place of each change in it.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// The code of each change, by its number, in bytes of the text. A compiler error there is caused by that change.
    pub(crate) changes: Vec<(usize, Range<usize>)>,
    /// Where each change is chosen, including itself and the original code.
    pub(crate) choices: Vec<(usize, Range<usize>)>,
}

/// Text to be written before and after a part of the file.
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) before: Vec<Piece>,
    pub(super) after: Vec<Piece>,
}

/// A piece of an edit.
pub(super) enum Piece {
    Text(String),
    /// The code of a change.
    Change(usize, String),
}

impl Rewritten {
    /// Writes a part of the file and all edits in it.
    pub(super) fn write<I: Iterator<Item = Edit>>(
        &mut self,
        text: &str,
        range: Range<usize>,
        edits: &mut Peekable<I>,
    ) {
        let mut at = range.start;
        while let Some(edit) = edits.next_if(|edit| edit.range.start <= range.end) {
            self.text += &text[at..edit.range.start];
            at = edit.range.end;
            let (start, own) = (self.text.len(), edit.changes());
            self.pieces(edit.before);
            self.write(text, edit.range, edits);
            self.pieces(edit.after);
            let whole = start..self.text.len();
            let own = own.into_iter().map(|number| (number, whole.clone()));
            self.choices.extend(own);
        }
        self.text += &text[at..range.end];
    }

    fn pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let start = self.text.len();
            match piece {
                Piece::Text(text) => self.text += &text,
                Piece::Change(number, text) => {
                    self.text += &text;
                    self.changes.push((number, start..self.text.len()));
                }
            }
        }
    }
}

impl Edit {
    /// Returns the numbers of its changes.
    fn changes(&self) -> Vec<usize> {
        let pieces = self.before.iter().chain(&self.after);
        let numbers = pieces.filter_map(|piece| match piece {
            Piece::Change(number, _) => Some(*number),
            Piece::Text(_) => None,
        });
        numbers.collect()
    }
}
