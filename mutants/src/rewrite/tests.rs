use super::*;

/// Returns a text with one change, at the first occurrence of `part`, after `rewrite`.
fn with(text: &str, kind: Kind, part: &str, replacement: &str) -> (String, Vec<Change>) {
    let start = text.find(part).expect("the part is in the text");
    let mut changes = vec![Change {
        file: "f.rs".to_owned(),
        range: start..start + part.len(),
        replacement: replacement.to_owned(),
        kind,
        name: String::new(),
        state: State::Tried,
    }];
    let new = rewrite(
        text,
        "f.rs",
        &mut changes,
        &BTreeSet::from(["kept".to_owned()]),
    );
    let new = new.expect("the text can be parsed");
    syn::parse_file(&new.text).unwrap_or_else(|error| panic!("{error} in {}", new.text));
    for (number, range) in &new.changes {
        assert_eq!(*number, 0);
        assert!(new.choices.iter().any(|(_, whole)| whole.end >= range.end));
    }
    (new.text.replace("crate::mutant_switch::", ""), changes)
}

#[track_caller]
fn becomes(text: &str, kind: Kind, part: &str, replacement: &str, expected: &str) {
    let (new, changes) = with(text, kind, part, replacement);
    assert_eq!(new, expected);
    assert_eq!(changes[0].state, State::Tried);
}

#[track_caller]
fn stays(text: &str, kind: Kind, part: &str, replacement: &str, state: State) {
    let (new, changes) = with(text, kind, part, replacement);
    assert_eq!((new.as_str(), changes[0].state), (text, state));
}

#[test]
fn operators_are_chosen_from() {
    becomes(
        "fn f() { ü(a < b + 1) }",
        Kind::BinaryOperator,
        "<",
        "<=",
        "fn f() { ü((if off(0, 1) { a < b + 1 } else { (a) <= (b + 1) })) }",
    );
    becomes(
        "fn f() { n += 1; }",
        Kind::BinaryOperator,
        "+=",
        "-=",
        "fn f() { (if off(0, 1) { n += 1 } else { (n) -= (1) }); }",
    );
    becomes(
        "fn f() -> bool { !x }",
        Kind::UnaryOperator,
        "!",
        "",
        "fn f() -> bool { (if off(0, 1) { !x } else { (x) }) }",
    );
}

#[test]
fn a_function_returns_a_value_at_once() {
    becomes(
        "fn f() -> u8 { 1 }",
        Kind::FnValue,
        "1",
        "0",
        "fn f() -> u8 { if on(0) { return 0; } 1 }",
    );
    stays(
        "fn f() -> impl Sized { 1 }",
        Kind::FnValue,
        "1",
        "0",
        State::NotSwitchable,
    );
}

#[test]
fn arms_guards_and_fields_are_switched() {
    becomes(
        "fn f() { match x { 1 => 2, _ => 3 } }",
        Kind::MatchArm,
        "1 => 2",
        "",
        "fn f() { match x { 1 if off(0, 1) => 2, _ => 3 } }",
    );
    becomes(
        "fn f() { match x { y if y > 1 => 2, _ => 3 } }",
        Kind::MatchArm,
        "y if",
        "",
        "fn f() { match x { y if off(0, 1) && (y > 1) => 2, _ => 3 } }",
    );
    becomes(
        "fn f() { match x { y if y > 1 => 2, _ => 3 } }",
        Kind::MatchArmGuard,
        "y > 1",
        "true",
        "fn f() { match x { y if (if off(0, 1) { y > 1 } else { true }) => 2, _ => 3 } }",
    );
    becomes(
        "fn f() { S { a: 1, b, ..d } }",
        Kind::StructField,
        "a: 1",
        "",
        "fn f() { (if off(0, 1) { S { a: 1, b, ..d } } else { S { b, ..d } }) }",
    );
}

#[test]
fn what_the_compiler_must_know_is_not_switched() {
    let state = State::NotSwitchable;
    stays(
        "const N: u8 = 1 + 2;",
        Kind::BinaryOperator,
        "+",
        "-",
        state,
    );
    stays(
        "fn f(x: [u8; 1 + 2]) {}",
        Kind::BinaryOperator,
        "+",
        "-",
        state,
    );
    stays(
        "const fn kept() -> u8 { 1 + 2 }",
        Kind::BinaryOperator,
        "+",
        "-",
        state,
    );
    let condition = "fn f() { if let 1 = x && y {} }";
    stays(
        condition,
        Kind::BinaryOperator,
        "&&",
        "||",
        State::DoesNotCompile,
    );
    becomes(
        "const fn f() -> u8 { 1 + 2 }",
        Kind::BinaryOperator,
        "+",
        "-",
        "/*const*/ fn f() -> u8 { (if off(0, 1) { 1 + 2 } else { (1) - (2) }) }",
    );
}

#[test]
fn a_change_in_another_is_switched_there() {
    let text = "fn f() { a < b + c }";
    let at = |part: &str, replacement: &str| Change {
        file: "f.rs".to_owned(),
        range: text.find(part).expect("it is there")..text.len(),
        replacement: replacement.to_owned(),
        kind: Kind::BinaryOperator,
        name: String::new(),
        state: State::Tried,
    };
    let mut changes = [at("<", ">"), at("<", "=="), at("+", "-")];
    let new = rewrite(text, "f.rs", &mut changes, &BTreeSet::new()).expect("it parses");
    assert_eq!(
        new.text.replace("crate::mutant_switch::", ""),
        "fn f() { (if off(0, 2) { a < (if off(2, 3) { b + c } else { (b) - (c) }) } \
         else if on(0) { (a) > (b + c) } else { (a) == (b + c) }) }"
    );
}
