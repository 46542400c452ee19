//! What a statement may do, and who may have it done.
//!
//! | statement | who |
//! | --- | --- |
//! | `DROP SCHEMA`, `DROP FUNCTION` | nobody: all clients would be without it until a restart |
//! | whatever is kept and calls `giveway_cancel`: views, defaults, orders of tables | nobody: it would cancel with the rights of whoever reads it |
//! | `DROP`, `CREATE OR REPLACE`, `COPY` (which replaces files) | logins for all tiers |
//! | other statements | all logins |
//!
//! The schema of `giveway.queries` is of a kind of its own, which nothing is added to or
//! removed from (`live`).

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan};
use giveway_tier::Tier;

use crate::error::SqlError;
use crate::live;

/// Whether a login whose highest tier this is may have a statement done.
///
/// # Errors
/// [`SqlError::Denied`].
pub(crate) fn check(plan: &LogicalPlan, tier_max: Tier) -> std::result::Result<(), SqlError> {
    let mut refusal = None;
    let visited = plan.apply_with_subqueries(|node| {
        refusal = refused(node, tier_max)?;
        Ok(match refusal {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    });
    visited.map_err(SqlError::planning)?;
    match refusal {
        Some(why) => Err(SqlError::Denied(why)),
        None => Ok(()),
    }
}

/// Why this node of a statement is not for this login.
fn refused(node: &LogicalPlan, tier_max: Tier) -> Result<Option<String>> {
    if let LogicalPlan::Ddl(ddl) = node {
        if let DdlStatement::DropCatalogSchema(_) | DdlStatement::DropFunction(_) = ddl {
            return Ok(Some(format!(
                "{} is refused for every login: what it drops would be gone for all clients",
                words(ddl)
            )));
        }
        if cancels(ddl)? {
            return Ok(Some(format!(
                "{}: {} has to be called by the statement itself, or it would cancel with the \
                 rights of others",
                words(ddl),
                live::CANCEL
            )));
        }
    }
    let what = match node {
        LogicalPlan::Ddl(ddl) if replaces(ddl) => words(ddl),
        LogicalPlan::Copy(_) => "COPY",
        _ => return Ok(None),
    };
    Ok((tier_max < Tier::TimeSensitive).then(|| {
        format!(
            "{what}: a login for work in the tier {tier_max} replaces and drops nothing: log in \
             as another user"
        )
    }))
}

/// A statement as it is typed, rather than by its name in the planner.
fn words(ddl: &DdlStatement) -> &'static str {
    match ddl {
        DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
        DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
        DdlStatement::CreateView(_) => "CREATE VIEW",
        DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
        DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
        DdlStatement::CreateIndex(_) => "CREATE INDEX",
        DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
        DdlStatement::DropTable(_) => "DROP TABLE",
        DdlStatement::DropView(_) => "DROP VIEW",
        DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
        DdlStatement::DropFunction(_) => "DROP FUNCTION",
    }
}

/// Whether something that is there would be gone.
fn replaces(ddl: &DdlStatement) -> bool {
    match ddl {
        DdlStatement::CreateExternalTable(create) => create.or_replace,
        DdlStatement::CreateMemoryTable(create) => create.or_replace,
        DdlStatement::CreateView(create) => create.or_replace,
        DdlStatement::CreateFunction(create) => create.or_replace,
        DdlStatement::DropTable(_)
        | DdlStatement::DropView(_)
        | DdlStatement::DropCatalogSchema(_)
        | DdlStatement::DropFunction(_) => true,
        DdlStatement::CreateCatalogSchema(_)
        | DdlStatement::CreateCatalog(_)
        | DdlStatement::CreateIndex(_) => false,
    }
}

/// Whether what it would keep cancels queries.
fn cancels(ddl: &DdlStatement) -> Result<bool> {
    match ddl {
        DdlStatement::CreateView(view) => {
            let mut found = false;
            view.input.apply_with_subqueries(|node| {
                node.apply_expressions(|expression| {
                    found |= live::calls_cancel(expression)?;
                    Ok(stop_at(found))
                })
            })?;
            Ok(found)
        }
        DdlStatement::CreateExternalTable(table) => {
            let orders = table.order_exprs.iter().flatten().map(|sort| &sort.expr);
            any_cancels(table.column_defaults.values().chain(orders))
        }
        _ => Ok(false),
    }
}

fn any_cancels<'a>(mut expressions: impl Iterator<Item = &'a Expr>) -> Result<bool> {
    expressions.try_fold(false, |found, expression| {
        Ok(found || live::calls_cancel(expression)?)
    })
}

fn stop_at(found: bool) -> TreeNodeRecursion {
    match found {
        true => TreeNodeRecursion::Stop,
        false => TreeNodeRecursion::Continue,
    }
}
