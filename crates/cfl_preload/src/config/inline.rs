//! The shorthand of the environment variable, as a TOML table.
//!
//! ```text
//! settings  = statement { ";" statement }
//! statement = { key "=" value }                   top level
//!           | ("lock" | "stats") { key "=" value }
//!           | "group" NAME { key "=" value }
//! ```
//!
//! Words are separated by blanks. A value is a number, `on` or `off`, or text;
//! for the keys that take several, text separated by commas. A name with a
//! blank, comma or semicolon in it needs the file, or `?` in its place.

use toml::{Table, Value};

/// Keys whose values are lists.
const LISTS: [&str; 4] = ["programs", "threads", "cgroups", "criteria"];

/// What `text` says, without knowing which keys exist.
pub(super) fn table(text: &str) -> Result<Table, String> {
    let mut table = Table::new();
    let mut groups: Vec<Value> = Vec::new();
    for statement in text.split(';') {
        let mut words = statement.split_whitespace().peekable();
        match words.peek().copied() {
            None => {}
            Some("group") => {
                words.next();
                let name = words
                    .next()
                    .filter(|name| !name.contains('='))
                    .ok_or_else(|| format!("a group without a name in \"{}\"", statement.trim()))?;
                let mut group = Table::from_iter([("name".to_owned(), name.into())]);
                assignments(words, &mut group)?;
                groups.push(group.into());
            }
            Some(section @ ("lock" | "stats")) => {
                words.next();
                let entry = table.entry(section).or_insert_with(|| Table::new().into());
                let Value::Table(inner) = entry else {
                    return Err(format!("{section} is a section and takes no value"));
                };
                assignments(words, inner)?;
            }
            Some(_) => assignments(words, &mut table)?,
        }
    }
    if !groups.is_empty() {
        table.insert("group".to_owned(), groups.into());
    }
    Ok(table)
}

fn assignments<'a>(words: impl Iterator<Item = &'a str>, table: &mut Table) -> Result<(), String> {
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("\"{word}\" is not of the form key=value"))?;
        let value = match LISTS.contains(&key) {
            true => Value::Array(value.split(',').map(Value::from).collect()),
            false => scalar(value),
        };
        if table.insert(key.to_owned(), value).is_some() {
            return Err(format!("{key} is set twice"));
        }
    }
    Ok(())
}

fn scalar(text: &str) -> Value {
    match text {
        "on" | "true" => true.into(),
        "off" | "false" => false.into(),
        _ => text
            .parse::<i64>()
            .map_or_else(|_| text.into(), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_statement_is_refused_with_the_reason() {
        let refused = |text| table(text).unwrap_err();
        assert_eq!(
            refused("group weight=3"),
            "a group without a name in \"group weight=3\""
        );
        assert_eq!(
            refused("stats stderr"),
            "\"stderr\" is not of the form key=value"
        );
        assert_eq!(refused("lock spin_us=1 spin_us=2"), "spin_us is set twice");
        assert_eq!(
            refused("lock=3; lock a=1"),
            "lock is a section and takes no value"
        );
    }

    #[test]
    fn empty_statements_are_ignored() {
        assert_eq!(table(" ; ;; "), Ok(Table::new()));
    }
}
