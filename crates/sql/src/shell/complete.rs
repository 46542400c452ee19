//! What the word before the cursor may become.
//!
//! At the beginning of a line with a backslash: the shell's commands. Elsewhere: names of
//! tables and columns, and words of SQL, which come in the case that has been begun.

/// The shell's commands.
const COMMANDS: [&str; 10] = [
    "\\d",
    "\\timing",
    "\\format",
    "\\tier",
    "\\weight",
    "\\deadline",
    "\\queries",
    "\\cancel",
    "\\q",
    "\\?",
];

/// The words that people write most.
const WORDS: [&str; 54] = [
    "all", "and", "as", "asc", "avg", "between", "by", "cancel", "case", "cast", "copy", "count",
    "create", "cross", "date", "desc", "distinct", "drop", "else", "end", "except", "exists",
    "explain", "external", "from", "full", "group", "having", "in", "inner", "insert", "interval",
    "into", "is", "join", "left", "like", "limit", "location", "max", "min", "not", "null", "on",
    "order", "query", "select", "show", "stored", "sum", "table", "union", "values", "where",
];

/// Where the word before `cursor` begins, and what it may become. `cursor` is a place
/// between two characters of the line.
pub fn complete(line: &str, cursor: usize, names: &[String]) -> (usize, Vec<String>) {
    let before = &line[..cursor];
    if before.starts_with('\\') && !before.contains(char::is_whitespace) {
        let commands = COMMANDS.into_iter().filter(|word| word.starts_with(before));
        return (0, commands.map(str::to_owned).collect());
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let start = before.rfind(|c| !is_part(c)).map_or(0, |at| {
        at + before[at..].chars().next().map_or(1, char::len_utf8)
    });
    let begun = &before[start..];
    if begun.is_empty() {
        return (start, Vec::new());
    }
    let lower = begun.to_lowercase();
    let is_upper = !begun.contains(char::is_lowercase);
    let words = WORDS.into_iter().filter(|word| word.starts_with(&lower));
    let words = words.map(|word| match is_upper {
        true => word.to_uppercase(),
        false => word.to_owned(),
    });
    let named = names
        .iter()
        .filter(|name| name.to_lowercase().starts_with(&lower));
    let mut found: Vec<String> = named.cloned().chain(words).collect();
    found.dedup();
    (start, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_names_commands_and_sql() {
        let names = ["orders", "o_custkey", "größe"].map(str::to_owned);
        let found = |line: &str| complete(line, line.len(), &names);
        assert_eq!(found("SEL"), (0, vec!["SELECT".to_owned()]));
        assert_eq!(found("select o_c"), (7, vec!["o_custkey".to_owned()]));
        let (start, or) = found("select * from or");
        assert_eq!(
            (start, or),
            (14, vec!["orders".to_owned(), "order".to_owned()])
        );
        assert_eq!(found("\\ti").1, ["\\timing", "\\tier"]);
        assert_eq!(found("select 'é',grö"), (12, vec!["größe".to_owned()]));
        assert_eq!(found("select ").1, Vec::<String>::new());
        assert_eq!(found("").1, Vec::<String>::new());
        // In the middle of a line only what is before counts.
        assert_eq!(complete("sel from", 3, &names).1, ["select"]);
    }

    #[test]
    fn every_command_of_the_help_is_completed() {
        for line in super::super::command::HELP.lines() {
            if let Some(word) = line
                .split_whitespace()
                .next()
                .filter(|word| word.starts_with('\\'))
            {
                assert!(COMMANDS.contains(&word), "{word}");
            }
        }
    }
}
