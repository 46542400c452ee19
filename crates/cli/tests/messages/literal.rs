//! A string literal of a Rust source, for the tests that compare what programs write with the
//! pages that list it. `scx_ufs` has such a test, too.

/// A literal's text on one line, also that of `format_args!` or `format!`, with `…` for what
/// is to be filled in, and what follows the literal; none if there is something else.
pub(crate) fn literal(source: &str) -> Option<(String, &str)> {
    let source = source.trim_start();
    let inner = ["format_args!(", "format!("]
        .iter()
        .find_map(|call| source.strip_prefix(call));
    let source = inner.unwrap_or(source).trim_start();
    let mut rest = source.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some((text, rest.as_str())),
            '\\' => match rest.next()? {
                // The literal goes on with the next word.
                '\n' => rest = rest.as_str().trim_start().chars(),
                c => text.push(c),
            },
            '{' => {
                while rest.next()? != '}' {}
                text.push('…');
            }
            c => text.push(c),
        }
    }
}

#[test]
fn literal_is_read_as_rust_reads_it() {
    let text = |source| literal(source).map(|(text, rest)| (text, rest.to_owned()));
    let read = |source| text(source).unwrap_or_default();
    assert_eq!(read(" \"a {b} c\", d"), ("a … c".into(), ", d".into()));
    assert_eq!(read("\n format!(\"{}\")"), ("…".into(), ")".into()));
    let lines = "\"say \\\"a\\\" \\\n     and b\";";
    assert_eq!(read(lines), ("say \"a\" and b".into(), ";".into()));
    assert_eq!(text("name"), None);
    assert_eq!(text("\"without an end"), None);
}
