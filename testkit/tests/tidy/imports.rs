//! Checks that there is no cycle of imports among the files of a crate: a file is never imported by what it imports. A
//! file and its own parts count as one.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::rust_sources;

/// The modules that each module imports, by crate; modules are written `a::b`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the crate and the module of a file; none for tests and for crate roots.
fn module_of(path: &str) -> Option<(String, String)> {
    let (name, file) = path.split_once("/src/")?;
    let file = file.strip_suffix(".rs")?;
    let file = file.strip_suffix("/mod").unwrap_or(file);
    let is_test = file.split('/').any(|part| part == "tests");
    let counts = !is_test && !["lib", "main"].contains(&file) && !file.starts_with("bin/");
    counts.then(|| (name.to_owned(), file.replace('/', "::")))
}

/// Returns a file's code, without comments and tests.
fn code(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the text up to the first character that cannot be part of a path.
fn path_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    &text[..end.unwrap_or(text.len())]
}

/// Returns the paths below `crate::` and `super::`, as paths from the crate's root.
fn paths(module: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    for (word, base) in [("crate::", ""), ("super::", parent)] {
        for (at, _) in code.match_indices(word) {
            let rest = &code[at + word.len()..];
            let before = path_at(rest);
            let list = rest[before.len()..].strip_prefix('{');
            let items = list.map_or(vec![""], items);
            found.extend(items.iter().map(|item| {
                let path = format!("{base}::{before}{}", path_at(item));
                path.trim_matches(':').to_owned()
            }));
        }
    }
    // a list may end with a comma
    found.retain(|path| !path.is_empty());
    found
}

/// Returns the items of a list in braces, which begins after the first brace.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(list[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns whether one is the other or a part of it.
fn is_family(one: &str, other: &str) -> bool {
    let part = |whole: &str, part: &str| part == whole || part.starts_with(&format!("{whole}::"));
    part(one, other) || part(other, one)
}

/// Returns what the modules of a crate import, according to their code.
fn imports(modules: &BTreeMap<String, String>) -> Imports {
    let longest = |path: &str| {
        let mut path = path;
        loop {
            if modules.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let of = |(module, code): (&String, &String)| {
        let found = paths(module, code)
            .into_iter()
            .filter_map(|path| longest(&path));
        let others = found.filter(|other| !is_family(module, other));
        (module.clone(), others.collect())
    };
    modules.iter().map(of).collect()
}

/// Returns some cycle, as the modules on it.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    let mut way = Vec::new();
    imports
        .keys()
        .find_map(|module| walk(imports, module, &mut way, &mut done))
}

fn walk(
    imports: &Imports,
    module: &str,
    way: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|before| before == module) {
        return Some(way[at..].to_vec());
    }
    if !done.insert(module.to_owned()) {
        return None;
    }
    way.push(module.to_owned());
    let next = imports.get(module).into_iter().flatten();
    let found = next
        .into_iter()
        .find_map(|other| walk(imports, other, way, done));
    way.pop();
    found
}

#[test]
fn no_files_import_each_other() {
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for source in rust_sources() {
        if let Some((name, module)) = module_of(&source.path) {
            crates
                .entry(name)
                .or_default()
                .insert(module, code(&source.text));
        }
    }
    let mut arrows = 0;
    for (name, modules) in crates {
        let imports = imports(&modules);
        arrows += imports.values().map(BTreeSet::len).sum::<usize>();
        if let Some(circle) = circle(&imports) {
            panic!("{name}: a circle of imports: {}", circle.join(" -> "));
        }
    }
    assert!(arrows > 300, "only {arrows} imports were read");
}

#[test]
fn imports_are_read() {
    let code = "use crate::{\n    a::{B, C},\n    d::e::F,\n    g,\n};\nuse crate::h::I;\nfn f() { crate::j::k() }\nuse super::l::M;";
    let expected = ["a", "d::e::F", "g", "h::I", "j::k", "x::l::M"];
    assert_eq!(paths("x::y", code), expected);
}

#[test]
fn a_circle_is_found() {
    let modules = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(module, code)| ((*module).to_owned(), (*code).to_owned()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    let straight = modules(&[
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", ""),
    ]);
    assert_eq!(circle(&imports(&straight)), None);
    let round = modules(&[
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::a::A;"),
    ]);
    let found = circle(&imports(&round)).unwrap();
    assert_eq!(found, ["a", "b", "c"]);
    // a file and its own parts may name each other
    let family = modules(&[("a", "use crate::a::b::B;"), ("a::b", "use super::A;")]);
    assert_eq!(circle(&imports(&family)), None);
}
