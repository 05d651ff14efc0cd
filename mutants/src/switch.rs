//! Determines which change is switched on in this process; `make mutants` adds this file to the crate it changes.

use std::{
    collections::HashSet,
    env,
    fs::{File, OpenOptions},
    io::Write,
    sync::{Mutex, OnceLock},
};

/// The number of the change that is switched on.
const SWITCHED_ON: &str = "VENDUE_MUTANT";
/// The file to which reached changes are appended, one number per line.
const REACHED: &str = "VENDUE_MUTANTS_REACHED";

/// Returns whether this change is switched on.
pub(crate) fn on(change: usize) -> bool {
    !off(change, change + 1)
}

/// Returns whether none of these changes (`to` excluded) is switched on.
pub(crate) fn off(from: usize, to: usize) -> bool {
    static ON: OnceLock<usize> = OnceLock::new();
    static NOTES: OnceLock<Option<Notes>> = OnceLock::new();
    let on = *ON.get_or_init(|| {
        let on = env::var(SWITCHED_ON).ok();
        on.and_then(|on| on.parse().ok()).unwrap_or(usize::MAX)
    });
    if let Some(notes) = NOTES.get_or_init(Notes::open) {
        (from..to).for_each(|change| notes.reached(change));
    }
    !(from..to).contains(&on)
}

struct Notes(Mutex<(HashSet<usize>, File)>);

impl Notes {
    fn open() -> Option<Self> {
        let path = env::var_os(REACHED)?;
        let file = OpenOptions::new().append(true).create(true).open(path);
        Some(Self(Mutex::new((HashSet::new(), file.ok()?))))
    }

    fn reached(&self, change: usize) {
        let Ok(mut notes) = self.0.lock() else { return };
        let (seen, file) = &mut *notes;
        if seen.insert(change) {
            // written at once, as nothing is called when the process ends
            let _ = file.write_all(format!("{change}\n").as_bytes());
        }
    }
}
