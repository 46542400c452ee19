//! What a statement's text may be, before it is parsed, and its plan, before it is optimized.
//!
//! Parser, planner and operators call themselves for what is inside something else, and so
//! does whoever drops a plan: a text that is deep enough overflows a thread's stack, which
//! ends the process. The parser counts parentheses, and not what it reads in a loop: `1 + 1
//! + …`, `x IS NULL IS NULL …`, `SELECT … UNION SELECT …`. So words are counted here:
//!
//! | counted | bounds |
//! | --- | --- |
//! | the words between two commas, with those around the parentheses | how deep an expression can be |
//! | queries, joins, set operations and names after `FROM` | how deep a plan can be |
//!
//! A plan also has what is in its views, and of these the text says nothing. So it is
//! measured once more ([`check_plan`]): how deep expressions are that an optimizer may put
//! into each other, and how many nodes there are, those that are used twice counted twice.
//! What would take the planner long before there is a plan, `expansion` refuses.
//!
//! A list of any length is not deep. Known weakness: a `CASE` of very many branches is not
//! deep either, and is refused.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Bytes of a text: what it is parsed to is a hundred times as large.
const TEXT_MAX: usize = 1 << 20;
/// Words that may be inside each other. Threads that parse, plan and run have
/// [`STACK_BYTES`] for them.
const WORDS_MAX: usize = 4000;
/// Relations that may be inside each other.
const RELATIONS_MAX: usize = 1000;
/// Expressions of a plan that may be inside each other: each has two words at least.
const LEVELS_MAX: usize = WORDS_MAX / 2;
/// Operators of a plan that may be inside each other: each relation has some.
const NODES_DEEP_MAX: usize = 4 * RELATIONS_MAX;
/// Operators of a plan by default.
pub(crate) const NODES_MAX: usize = 20 * RELATIONS_MAX;

/// The stack of a thread that plans or runs statements; memory only where it is used.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// Whether a text can be parsed at all.
///
/// # Errors
/// It is too long, or too deep; the error says what to write instead.
pub(crate) fn check(text: &str, dialect: &dyn Dialect) -> Result<()> {
    if text.len() > TEXT_MAX {
        return plan_err!(
            "the statement has {} bytes, and at most {TEXT_MAX} are read: put its values into a \
             table or into parameters",
            text.len()
        );
    }
    // The parser says what is wrong with others.
    let Ok(tokens) = Tokenizer::new(dialect, text).tokenize() else {
        return Ok(());
    };
    let depth = depth(&tokens);
    if depth.words > WORDS_MAX {
        return plan_err!(
            "an expression of {} words, and at most {WORDS_MAX} are read: write IN (…) for a \
             chain of OR, or join a table",
            depth.words
        );
    }
    if depth.relations > RELATIONS_MAX {
        return plan_err!(
            "{} queries and tables in one statement, and at most {RELATIONS_MAX} are read: \
             put them into a table first",
            depth.relations
        );
    }
    Ok(())
}

/// Whether a plan can be optimized and run: it has so many operators at most.
///
/// # Errors
/// It is too deep, or too large, with the views in it.
pub(crate) fn check_plan(plan: &LogicalPlan, nodes_max: usize) -> Result<()> {
    let mut measure = Measure {
        nodes_max,
        nodes: 0,
        subqueries: Vec::new(),
    };
    measure.add(plan, Place::default())?;
    while let Some((subquery, place)) = measure.subqueries.pop() {
        measure.add(&subquery, place)?;
    }
    Ok(())
}

/// Where something is in a plan: below how many nodes and expressions.
#[derive(Clone, Copy, Default)]
struct Place {
    nodes: usize,
    levels: usize,
}

/// What has been seen of a plan; its own stack, since the thread's might be too small.
struct Measure {
    nodes_max: usize,
    nodes: usize,
    subqueries: Vec<(Arc<LogicalPlan>, Place)>,
}

impl Measure {
    fn add(&mut self, plan: &LogicalPlan, place: Place) -> Result<()> {
        let mut rest = vec![(plan, place)];
        while let Some((node, mut place)) = rest.pop() {
            self.nodes += 1;
            place.nodes += 1;
            place.levels += self.levels(node, place)?;
            if place.levels > LEVELS_MAX || place.nodes > NODES_DEEP_MAX {
                return plan_err!(
                    "with the views and the WITH in it, the statement is too deep: at most \
                     {LEVELS_MAX} expressions and {NODES_DEEP_MAX} operators inside each other \
                     are planned: put rows of views into a table first"
                );
            }
            if self.nodes > self.nodes_max {
                return plan_err!(
                    "with the views and the WITH in it, the statement has more than {} operators: \
                     put rows of views into a table first, or raise --plan-size",
                    self.nodes_max
                );
            }
            rest.extend(node.inputs().into_iter().map(|input| (input, place)));
        }
        Ok(())
    }

    /// How deep the expressions of a node are; takes note of subqueries in them.
    fn levels(&mut self, node: &LogicalPlan, place: Place) -> Result<usize> {
        let mut deepest = 0;
        node.apply_expressions(|expression| {
            let mut rest = vec![(expression, 1)];
            while let Some((part, level)) = rest.pop() {
                deepest = deepest.max(level);
                if let Some(subquery) = subquery(part) {
                    let levels = place.levels + level;
                    self.subqueries.push((subquery, Place { levels, ..place }));
                }
                part.apply_children(|child| {
                    rest.push((child, level + 1));
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(deepest)
    }
}

fn subquery(expression: &Expr) -> Option<Arc<LogicalPlan>> {
    let subquery = match expression {
        Expr::ScalarSubquery(subquery) => subquery,
        Expr::Exists(exists) => &exists.subquery,
        Expr::InSubquery(within) => &within.subquery,
        Expr::SetComparison(comparison) => &comparison.subquery,
        _ => return None,
    };
    Some(Arc::clone(&subquery.subquery))
}

/// How deep a statement can be.
#[derive(Debug, Default, PartialEq)]
struct Depth {
    words: usize,
    relations: usize,
}

/// What is between two parentheses, or around all of them.
#[derive(Default)]
struct Level {
    /// Words since the last comma.
    words: usize,
    /// The most words of parentheses since then.
    inside: usize,
    /// The most of parts that are complete.
    most: usize,
    /// Whether names of tables may come.
    has_from: bool,
}

impl Level {
    fn end_part(&mut self) {
        self.most = self.most.max(self.words + self.inside);
        (self.words, self.inside) = (0, 0);
    }
}

fn depth(tokens: &[Token]) -> Depth {
    let mut levels = vec![Level::default()];
    let mut relations = 0;
    let close = |levels: &mut Vec<Level>| {
        // One too many closes nothing.
        if levels.len() > 1
            && let Some(mut level) = levels.pop()
            && let Some(outer) = levels.last_mut()
        {
            level.end_part();
            outer.inside = outer.inside.max(level.most);
        }
    };
    for token in tokens {
        let level = levels.last_mut().expect("the outermost stays");
        match token {
            Token::Whitespace(_) => {}
            Token::LParen | Token::LBracket | Token::LBrace => levels.push(Level::default()),
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut levels),
            Token::Comma | Token::SemiColon => {
                relations += usize::from(level.has_from);
                level.end_part();
            }
            Token::Word(word) => {
                level.words += 1;
                match word.keyword {
                    Keyword::SELECT
                    | Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT
                    | Keyword::MINUS => {
                        relations += 1;
                        level.has_from = false;
                    }
                    Keyword::JOIN => relations += 1,
                    Keyword::FROM => level.has_from = true,
                    Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::HAVING
                    | Keyword::WINDOW
                    | Keyword::ORDER
                    | Keyword::LIMIT => level.has_from = false,
                    _ => {}
                }
            }
            _ => level.words += 1,
        }
    }
    while levels.len() > 1 {
        close(&mut levels);
    }
    let mut outermost = levels.pop().expect("the outermost stays");
    outermost.end_part();
    Depth {
        words: outermost.most,
        relations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    fn depth_of(text: &str) -> Depth {
        depth(&Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap())
    }

    #[test]
    fn words_of_an_expression_are_counted_with_those_around_it() {
        for (text, words) in [
            ("SELECT 1 + 1 + 1", 6),
            ("SELECT a, b + 1, c", 3),
            ("SELECT 1 + (2 + (3 + 4))", 8),
            ("SELECT f(1 + 1, 2 + 2 + 2), 3", 7),
            ("SELECT 'a, b', \"c, d\" -- e, f", 2),
            ("VALUES (1, 2), (3, 4), (5, 6)", 2),
            ("a) + (b", 3),
        ] {
            assert_eq!(depth_of(text).words, words, "{text}");
        }
    }

    #[test]
    fn relations_of_a_statement_are_counted_wherever_they_are() {
        for (text, relations) in [
            ("SELECT a, b FROM t", 1),
            ("SELECT a, b FROM t, u, v WHERE x IN (1, 2)", 3),
            ("SELECT a FROM t JOIN u ON x JOIN v ON y ORDER BY a, b", 3),
            ("SELECT a, b UNION ALL SELECT a, b EXCEPT SELECT a, b", 5),
            ("SELECT a FROM (SELECT b FROM t, u) GROUP BY c, d", 3),
            ("INSERT INTO t VALUES (1, 2), (3, 4)", 0),
        ] {
            assert_eq!(depth_of(text).relations, relations, "{text}");
        }
    }

    #[test]
    fn what_is_refused_says_what_to_write() {
        let check = |text: &str| check(text, &GenericDialect {});
        let error = |text: &str| check(text).unwrap_err().to_string();
        let chain = format!("SELECT a = 1{}", " OR a = 1".repeat(1000));
        assert!(error(&chain).contains("write IN"), "{}", error(&chain));
        let hidden = format!("SELECT (1{}) IS NULL", " IS NULL".repeat(2000));
        assert!(error(&hidden).contains("4004 words"), "{}", error(&hidden));
        let union = "SELECT 1, 2 UNION ".repeat(501) + "SELECT 1, 2";
        assert!(error(&union).contains("1003 queries"), "{}", error(&union));
        let long = "1,".repeat(TEXT_MAX / 2 + 1);
        assert!(error(&long).contains("bytes"), "{}", error(&long));
        let list = format!("SELECT a IN ({}0) FROM t", "1, ".repeat(100_000));
        check(&list).unwrap();
        check("SELECT 'not closed").unwrap();
    }
}
