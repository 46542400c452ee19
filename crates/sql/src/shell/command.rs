//! Backslash commands: what a shell is asked beside SQL.

use std::time::Duration;

/// One line that begins with a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `\d`: all tables; `\d NAME`: the columns of one.
    Describe(Option<String>),
    /// `\timing [on|off]`: say how long each statement took.
    Timing(Option<bool>),
    /// `\format NAME`.
    Format(Option<String>),
    /// `\tier`, `\weight`, `\deadline` with or without a value: a setting shown
    /// or changed.
    Setting(&'static str, Option<String>),
    /// `\queries [SECONDS]`: what is running, once or again and again.
    Queries(Option<Duration>),
    /// `\cancel ID`.
    Cancel(String),
    /// `\q`.
    Quit,
    /// `\?`.
    Help,
}

/// What `\?` says.
pub(super) const HELP: &str = "\
\\d [TABLE]            tables, or the columns of one
\\timing [on|off]      say how long each statement takes
\\format [NAME]        table, csv, tsv, json or ndjson
\\tier [TIER]          time_sensitive or background, for what follows
\\weight [1-10000]     the share within the tier, for what follows
\\deadline [MS]        cancel what follows after so many ms; 0 never
\\queries [SECONDS]    what is running; with SECONDS, again and again until Ctrl-C
\\cancel ID            end a query that \\queries names
\\q                    leave (also Ctrl-D)
\\?                    this
Everything else is SQL up to a semicolon. Ctrl-C cancels the statement.
";

impl Command {
    /// Reads a line that begins with a backslash; the error says what to write.
    pub(super) fn parse(line: &str) -> Result<Command, String> {
        let line = line.trim().trim_end_matches(';').trim_end();
        let (name, argument) = match line.split_once(char::is_whitespace) {
            Some((name, argument)) => (name, Some(argument.trim())),
            None => (line, None),
        };
        let owned = argument.map(str::to_owned);
        match name {
            "\\d" => Ok(Command::Describe(owned)),
            "\\timing" => match argument {
                None => Ok(Command::Timing(None)),
                Some("on") => Ok(Command::Timing(Some(true))),
                Some("off") => Ok(Command::Timing(Some(false))),
                Some(other) => Err(format!("\\timing {other}: write on or off")),
            },
            "\\format" => Ok(Command::Format(owned)),
            "\\tier" => Ok(Command::Setting("tier", owned)),
            "\\weight" => Ok(Command::Setting("weight", owned)),
            "\\deadline" => Ok(Command::Setting("deadline", owned)),
            "\\queries" => match argument.map(str::parse::<f64>) {
                None => Ok(Command::Queries(None)),
                Some(Ok(seconds)) if (0.1..=3600.0).contains(&seconds) => {
                    Ok(Command::Queries(Some(Duration::from_secs_f64(seconds))))
                }
                Some(_) => Err("\\queries takes seconds from 0.1 to 3600".to_owned()),
            },
            "\\cancel" => owned
                .map(Command::Cancel)
                .ok_or_else(|| "\\cancel ID: \\queries shows the ids".to_owned()),
            "\\q" | "\\quit" => Ok(Command::Quit),
            "\\?" | "\\h" | "\\help" => Ok(Command::Help),
            other => Err(format!("unknown command {other}: \\? lists them")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_a_word_and_an_argument() {
        let parse = |line| Command::parse(line).unwrap();
        assert_eq!(parse("\\d"), Command::Describe(None));
        assert_eq!(
            parse("\\d  orders ;"),
            Command::Describe(Some("orders".into()))
        );
        assert_eq!(parse("\\timing off"), Command::Timing(Some(false)));
        assert_eq!(
            parse("\\tier background"),
            Command::Setting("tier", Some("background".into()))
        );
        assert_eq!(
            parse("\\queries 0.5"),
            Command::Queries(Some(Duration::from_millis(500)))
        );
        assert_eq!(parse("\\q"), Command::Quit);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("\\x", "\\? lists them"),
            ("\\timing maybe", "on or off"),
            ("\\queries soon", "0.1 to 3600"),
            ("\\queries NaN", "0.1 to 3600"),
            ("\\cancel", "\\queries shows"),
        ] {
            let said = Command::parse(line).unwrap_err();
            assert!(said.contains(expected), "{line}: {said}");
        }
    }

    #[test]
    fn help_names_every_command() {
        for name in [
            "d", "timing", "format", "tier", "weight", "deadline", "queries", "cancel", "q", "?",
        ] {
            assert!(
                HELP.contains(&format!("\n\\{name} ")) || HELP.starts_with(&format!("\\{name} ")),
                "{name}"
            );
        }
    }
}
