//! How large a statement is when each name of a `WITH` is replaced by its query.
//!
//! A query of a `WITH` that reads the one before twice doubles the plan, and thirty of them
//! in a short text make one of a billion operators:
//!
//! ```text
//!   WITH a AS (SELECT 1 x), b AS (SELECT a.x FROM a, a c), c AS (SELECT b.x FROM b, b c) …
//!   reads    1                  3                              7
//! ```
//!
//! The planner keeps such a plan as a graph, which is small, but walks it as a tree. So what
//! it would walk is counted before it begins, in the parsed text: a name of a `WITH` counts
//! as much as its query, all other names as one, and each query as one more.
//!
//! DataFusion also reads each query of a `WITH` twice when it looks for names of tables, and
//! so one that is inside of others twice as often for each of them. How deep they are is
//! bounded, too.
//!
//! What is in views is counted when there is a plan (`statement`).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, Visit, Visitor};

/// `WITH`s inside of each other's queries.
const NESTED_MAX: usize = 12;

/// Whether the planner may walk a statement: it reads so many queries and tables at most.
///
/// # Errors
/// It is too large; the error says what to write instead.
pub(crate) fn check(statement: &Statement, most: usize) -> Result<()> {
    let mut expansion = Expansion {
        levels: vec![Level::default()],
        most,
    };
    match expansion.visit(statement) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(TooLarge::Reads) => plan_err!(
            "with the queries of WITH in place of their names, the statement reads more than \
             {most} queries and tables: put the rows of some into a table first, or raise \
             --plan-size"
        ),
        ControlFlow::Break(TooLarge::Nested) => plan_err!(
            "more than {NESTED_MAX} WITH inside of each other: write their queries one after \
             the other in one WITH"
        ),
    }
}

/// Why a statement is refused.
enum TooLarge {
    Reads,
    Nested,
}

struct Expansion {
    /// The queries that the visit is in, the innermost last; before them the statement.
    levels: Vec<Level>,
    most: usize,
}

/// What is known of a query.
#[derive(Default)]
struct Level {
    /// The queries of its `WITH` that are still to come, by where they are.
    coming: HashMap<*const Query, String>,
    /// What the names of its `WITH` read that have come.
    names: HashMap<String, usize>,
    /// What it reads, without these.
    reads: usize,
    /// In how many queries of a `WITH` it is.
    nested: usize,
}

impl Expansion {
    fn visit(&mut self, statement: &Statement) -> ControlFlow<TooLarge> {
        match statement {
            Statement::Statement(statement) => statement.visit(self),
            Statement::Explain(explain) => self.visit(&explain.statement),
            Statement::CopyTo(copy) => match &copy.source {
                CopyToSource::Query(query) => query.visit(self),
                CopyToSource::Relation(_) => ControlFlow::Continue(()),
            },
            Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
        }
    }

    fn innermost(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the statement stays")
    }

    fn read(&mut self, reads: usize) -> ControlFlow<TooLarge> {
        let most = self.most;
        let level = self.innermost();
        level.reads = level.reads.saturating_add(reads);
        match level.reads > most {
            true => ControlFlow::Break(TooLarge::Reads),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Expansion {
    type Break = TooLarge;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<TooLarge> {
        let outer = self.innermost();
        let is_of_with = outer.coming.contains_key(&std::ptr::from_ref(query));
        let nested = outer.nested + usize::from(is_of_with);
        if nested > NESTED_MAX {
            return ControlFlow::Break(TooLarge::Nested);
        }
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        let coming = with.map(|one| (&raw const *one.query, name(&one.alias.name)));
        self.levels.push(Level {
            coming: coming.collect(),
            nested,
            ..Level::default()
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<TooLarge> {
        let level = self.levels.pop().expect("pushed when the visit began");
        let reads = level.reads + 1;
        let outer = self.innermost();
        match outer.coming.remove(&std::ptr::from_ref(query)) {
            Some(name) => {
                outer.names.insert(name, reads);
                ControlFlow::Continue(())
            }
            None => self.read(reads),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<TooLarge> {
        let reads = match &relation.0[..] {
            [only] => only.as_ident().and_then(|ident| {
                let name = name(ident);
                let levels = self.levels.iter().rev();
                levels
                    .map(|level| level.names.get(&name))
                    .find_map(|reads| reads.copied())
            }),
            _ => None,
        };
        self.read(reads.unwrap_or(1))
    }
}

/// A name as the planner compares it.
fn name(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParser;

    fn checked(text: &str, most: usize) -> Result<()> {
        let mut statements = DFParser::parse_sql(text).unwrap();
        check(&statements.pop_back().unwrap(), most)
    }

    #[test]
    fn names_of_a_with_count_as_their_queries() {
        for (text, reads) in [
            ("SELECT 1", 1),
            ("SELECT * FROM t, u JOIN v ON true", 4),
            ("SELECT (SELECT x FROM t) FROM u", 4),
            ("WITH a AS (SELECT 1) SELECT * FROM a", 2),
            ("WITH a AS (SELECT * FROM t) SELECT * FROM a, a b", 5),
            (
                "WITH a AS (SELECT 1), b AS (SELECT * FROM a, A c), c AS (SELECT * FROM b, b d) \
                 SELECT * FROM c",
                8,
            ),
            // The name is that of the nearest WITH; in its own query it is that of a table.
            (
                "WITH a AS (SELECT * FROM t, t u) SELECT * FROM (WITH a AS (SELECT 1) \
                 SELECT * FROM a), a",
                6,
            ),
            ("WITH a AS (SELECT * FROM a) SELECT * FROM a", 3),
            ("WITH a AS (SELECT * FROM t, u) SELECT * FROM s.a", 2),
            ("EXPLAIN SELECT * FROM t", 2),
            ("COPY (SELECT * FROM t) TO 'x.csv'", 2),
            (
                "CREATE VIEW v AS WITH a AS (SELECT 1) SELECT * FROM a, a b",
                3,
            ),
        ] {
            assert!(checked(text, reads).is_ok(), "{reads}: {text}");
            assert!(checked(text, reads - 1).is_err(), "{reads}: {text}");
        }
    }

    #[test]
    fn withs_inside_of_each_other_are_bounded() {
        let nested = |depth: usize| {
            let inside = |query: String, _| format!("WITH a AS ({query}) SELECT * FROM a");
            (0..depth).fold("SELECT 1".to_owned(), inside)
        };
        assert!(checked(&nested(NESTED_MAX), 1000).is_ok());
        let error = checked(&nested(NESTED_MAX + 1), 1000).unwrap_err();
        assert!(error.to_string().contains("in one WITH"), "{error}");
    }
}
