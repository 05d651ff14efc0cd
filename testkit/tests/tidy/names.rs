//! Checks that the names of public types are unique: one name for one thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::rust_sources;

/// Names that still stand for more than one public type. This list may only get shorter.
const STILL_DOUBLE: &[&str] = &[];

/// Returns the files that define a public type, by its name.
fn public_types() -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in rust_sources() {
        for line in source.text.lines() {
            if let Some(name) = public_type(line) {
                types.entry(name).or_default().push(source.path.clone());
            }
        }
    }
    types
}

fn public_type(line: &str) -> Option<String> {
    let mut words = line.trim_start().split(' ');
    let kinds = ["struct", "enum", "trait", "union", "type"];
    if words.next()? != "pub" || !kinds.contains(&words.next()?) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &name[..end.unwrap_or(name.len())];
    // a macro's `$name` is not a name
    (!name.is_empty()).then(|| name.to_owned())
}

#[test]
fn no_two_public_types_share_a_name() {
    let types = public_types();
    assert!(types.len() > 100, "only {} public types", types.len());
    let double: BTreeMap<_, _> = types.iter().filter(|(_, files)| files.len() > 1).collect();
    let found: BTreeSet<&str> = double.keys().map(|name| name.as_str()).collect();
    let allowed: BTreeSet<&str> = STILL_DOUBLE.iter().copied().collect();
    if found == allowed {
        return;
    }
    let new = double
        .iter()
        .filter(|(name, _)| !allowed.contains(name.as_str()));
    let new: Vec<String> = new
        .map(|(name, files)| format!("  {name}: {}", files.join(", ")))
        .collect();
    let gone: Vec<&&str> = allowed.difference(&found).collect();
    let list: Vec<String> = found
        .iter()
        .map(|name| format!("    {name:?},\n"))
        .collect();
    panic!(
        "names of more than one public type, not in STILL_DOUBLE:\n{}\n\
         names in STILL_DOUBLE that stand for one type now, or none: {gone:?}\n\
         if nothing can be renamed, the list is\n\n\
         const STILL_DOUBLE: &[&str] = &[\n{}];\n",
        new.join("\n"),
        list.concat()
    );
}

#[test]
fn public_types_are_recognized() {
    assert_eq!(public_type("pub struct Name<T> {"), Some("Name".into()));
    assert_eq!(public_type("    pub enum Inner {"), Some("Inner".into()));
    assert_eq!(public_type("pub type Alias = u32;"), Some("Alias".into()));
    assert_eq!(public_type("pub struct Unit;"), Some("Unit".into()));
    for other in [
        "pub struct $name(u64);",
        "struct Private;",
        "pub(crate) struct Crate;",
        "pub fn name() {}",
    ] {
        assert_eq!(public_type(other), None, "{other}");
    }
}
