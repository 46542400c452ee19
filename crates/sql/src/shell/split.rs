//! Text into statements, at semicolons that mean it.
//!
//! ```text
//!            '          "           --        /*         $tag$
//!   Plain ──► Single   ─► Double   ─► Line   ─► Block(n) ─► Dollar(tag)
//!     ▲         │ '        │ "         │ \n      │ */         │ $tag$
//!     └─────────┴──────────┴───────────┴─────────┴────────────┘
//! ```
//!
//! A semicolon ends a statement in `Plain` only. A doubled quote inside quotes
//! closes and opens again, which comes to the same. Block comments nest, as they
//! do in the parser that reads the statements afterwards.
//!
//! Known weakness: backslashes do not escape (they do not in standard SQL either,
//! but for `E'…'`, where a `\'` is taken for the end here).

/// Collects lines until statements are complete.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    text: String,
    /// How much of `text` has been looked at.
    seen: usize,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Single,
    Double,
    Line,
    Block(usize),
    Dollar(String),
}

impl Splitter {
    /// Nothing yet.
    pub(super) fn new() -> Splitter {
        Splitter::default()
    }

    /// Adds text, which is taken to end with a line end, and returns the
    /// statements that are complete now, without their semicolons. Statements of
    /// nothing but blanks and comments are left out.
    pub(super) fn push(&mut self, line: &str) -> Vec<String> {
        self.text.push_str(line);
        self.text.push('\n');
        let mut statements = Vec::new();
        while let Some(end) = self.semicolon() {
            let rest = self.text.split_off(end + 1);
            let statement = std::mem::replace(&mut self.text, rest);
            self.seen = 0;
            statements.extend(said(statement.strip_suffix(';').unwrap_or(&statement)));
        }
        statements
    }

    /// What is left at the end of the input: a statement without a semicolon.
    pub(super) fn finish(&mut self) -> Option<String> {
        let Splitter { text, .. } = std::mem::take(self);
        said(&text)
    }

    /// Whether nothing has been begun, so that the next line is a first one.
    pub(super) fn is_empty(&self) -> bool {
        self.state == State::Plain && said(&self.text).is_none()
    }

    /// Goes on to the next semicolon that ends a statement, and says where it is.
    fn semicolon(&mut self) -> Option<usize> {
        while let Some(next) = self.text[self.seen..].chars().next() {
            let at = self.seen;
            let rest = &self.text[at..];
            let mut width = next.len_utf8();
            match &mut self.state {
                State::Plain => match next {
                    ';' => {
                        self.seen += width;
                        return Some(at);
                    }
                    '\'' => self.state = State::Single,
                    '"' => self.state = State::Double,
                    '-' if rest.starts_with("--") => self.state = State::Line,
                    '/' if rest.starts_with("/*") => {
                        width = 2;
                        self.state = State::Block(1);
                    }
                    '$' => {
                        if let Some(tag) = dollar_tag(&self.text[..at], rest) {
                            width = tag.len();
                            self.state = State::Dollar(tag.to_owned());
                        }
                    }
                    _ => {}
                },
                State::Single if next == '\'' => self.state = State::Plain,
                State::Double if next == '"' => self.state = State::Plain,
                State::Line if next == '\n' => self.state = State::Plain,
                State::Block(depth) if rest.starts_with("/*") => {
                    width = 2;
                    *depth += 1;
                }
                State::Block(depth) if rest.starts_with("*/") => {
                    width = 2;
                    *depth -= 1;
                    if *depth == 0 {
                        self.state = State::Plain;
                    }
                }
                State::Dollar(tag) if rest.starts_with(tag.as_str()) => {
                    width = tag.len();
                    self.state = State::Plain;
                }
                _ => {}
            }
            self.seen += width;
        }
        None
    }
}

/// The `$tag$` that `rest` begins with. A `$` after a word belongs to it, and
/// `$1` is a parameter.
fn dollar_tag<'a>(before: &str, rest: &'a str) -> Option<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(is_word) {
        return None;
    }
    let inner = &rest[1..];
    let end = inner.find(|c| !is_word(c))?;
    let starts_well = !inner.starts_with(|c: char| c.is_ascii_digit());
    (inner[end..].starts_with('$') && starts_well).then(|| &rest[..end + 2])
}

/// The text, trimmed, if there is more to it than blanks and comments.
fn said(text: &str) -> Option<String> {
    let mut rest = text.trim_start();
    loop {
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if rest.starts_with("/*") {
            rest = after_block(rest);
        } else {
            break;
        }
        rest = rest.trim_start();
    }
    (!rest.is_empty()).then(|| text.trim().to_owned())
}

/// What follows the block comment that the text begins with; nothing if it does
/// not end.
fn after_block(text: &str) -> &str {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return &text[at..];
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let mut splitter = Splitter::new();
        let mut statements: Vec<_> = text.lines().flat_map(|line| splitter.push(line)).collect();
        statements.extend(splitter.finish());
        statements
    }

    #[test]
    fn semicolons_end_statements_unless_quoted() {
        assert_eq!(split("select 1; select 2;"), ["select 1", "select 2"]);
        assert_eq!(split("select ';'; x"), ["select ';'", "x"]);
        assert_eq!(split("select 'it''s;'; x"), ["select 'it''s;'", "x"]);
        assert_eq!(split("select \"a;b\"; x"), ["select \"a;b\"", "x"]);
        assert_eq!(split("select 1 -- a;b'\n; x"), ["select 1 -- a;b'", "x"]);
        assert_eq!(
            split("select /* ; /* ; */ ' */ 1; x"),
            ["select /* ; /* ; */ ' */ 1", "x"]
        );
        assert_eq!(split("select $$;'$$; x"), ["select $$;'$$", "x"]);
        assert_eq!(split("select $q$;$$;$q$; x"), ["select $q$;$$;$q$", "x"]);
        assert_eq!(split("select $1; select a$b$; x").len(), 3);
        assert_eq!(split("select 'ä;→'; x"), ["select 'ä;→'", "x"]);
    }

    #[test]
    fn statements_span_lines() {
        let mut splitter = Splitter::new();
        assert!(splitter.is_empty());
        assert!(splitter.push("select 'a;").is_empty());
        assert!(!splitter.is_empty());
        assert_eq!(splitter.push("b'; select 2"), ["select 'a;\nb'"]);
        assert!(!splitter.is_empty());
        assert_eq!(splitter.push(";"), ["select 2"]);
        assert!(splitter.is_empty());
        assert_eq!(splitter.finish(), None);
    }

    #[test]
    fn blanks_and_comments_are_no_statements() {
        assert!(split(" ;; -- nothing\n; /* no /* thing */ */ ;").is_empty());
        let mut splitter = Splitter::new();
        splitter.push("-- a remark");
        assert!(splitter.is_empty());
        splitter.push("/* open");
        assert!(!splitter.is_empty());
    }
}
