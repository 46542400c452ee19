/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * statement.c
 *		Which statements need a place in their class?
 *
 * A session of a class (class.c) takes a place (admit.c) for each statement that its
 * client sends and that computes: queries, and those commands that run queries or go
 * through tables.  Commands such as COMMIT, SET or LOCK need none, and so never wait.
 *
 *		takes a place								takes none
 *		the outermost ExecutorRun() of a portal		what it calls: functions, triggers, SPI
 *		FETCH, EXECUTE, CALL, DO, COPY, ...			DECLARE CURSOR, between FETCHes
 *		sessions of clients							parallel workers, autovacuum, WAL
 *													senders, background workers
 *
 * So whatever a statement starts inside the server runs with the statement's place, or
 * with none; nothing waits for a place that it itself holds up.
 *
 * WHEN.  A place is held during the outermost ExecutorRun() or ProcessUtility(): between
 * two FETCHes, or two portions of a suspended portal, others may have it.  A statement
 * that changes data keeps it until its triggers have run, in ExecutorFinish().
 *
 *		level		calls of our hooks on the stack.  At 0, PortalRun() has called us
 *					(ActivePortal is set), or something that is not a client's statement
 *					has: planning, deferred triggers at COMMIT
 *		COMMIT		stores the rows of a cursor WITH HOLD: it takes a place, also beyond
 *					the limit, for COMMIT must not wait
 *
 * ROLES.  The role that a session runs as (role.c) is looked at here, too: before a
 * statement is planned and executed, and after it.  These hooks do so at every level.
 *
 * THE TABLE.  A process that has asked for it looks for the answer here, before it begins
 * (giveway.c).
 *
 * THE DISK.  What only reads gives way at the disk, if this process is to (io.c).  What
 * does not ends that, at any level.
 *
 * INVARIANT.  At level 0 and outside of a statement there is no place: an error passes
 * the hook that took it, or the end of the transaction takes it back; at the end of the
 * process, admit.c does.
 *
 * WEAKNESS.  The fast path of the protocol, PQfn(), calls functions without a statement.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/planner.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"

#include "giveway.h"

static planner_hook_type previous_planner;
static ExecutorStart_hook_type previous_start;
static ExecutorRun_hook_type previous_run;
static ExecutorFinish_hook_type previous_finish;
static ProcessUtility_hook_type previous_utility;

/* How many of our hooks are on the stack. */
static int	level = 0;

/* How many commands are on the stack whose queries feed what they write. */
static int	writers = 0;

/* Whether the place is kept until ExecutorFinish(). */
static bool kept = false;

/* Whether this process has a client, which sends statements. */
static bool
is_a_session(void)
{
	return MyBackendType == B_BACKEND && !IsParallelWorker();
}

/* Whether we are called for a statement of the client, by nobody else. */
static bool
is_outermost(void)
{
	return level == 0 && ActivePortal != NULL && is_a_session();
}

/* Whether a COMMIT stores the rows of a cursor. */
static bool
is_stored_at_commit(void)
{
	return (ActivePortal->cursorOptions & CURSOR_OPT_HOLD) && ActivePortal->holdStore != NULL;
}

static bool
changes_data(const QueryDesc *query)
{
	return query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;
}

/* Whether a query takes nothing but pages: locks of rows are written to them. */
static bool
only_reads(const QueryDesc *query)
{
	return !changes_data(query) && query->plannedstmt->rowMarks == NIL;
}

/* Whether an EXPLAIN runs what it explains. */
static bool
analyzes(const ExplainStmt *explain)
{
	bool		analyze = false;
	ListCell   *cell;

	foreach(cell, explain->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "analyze") == 0)
			analyze = defGetBoolean(option);
	}
	return analyze;
}

/* Whether a command computes. */
static bool
computes(Node *command)
{
	switch (nodeTag(command))
	{
		case T_AlterTableStmt:
		case T_CallStmt:
		case T_ClusterStmt:
		case T_CopyStmt:
		case T_CreateTableAsStmt:
		case T_DoStmt:
		case T_ExecuteStmt:
		case T_FetchStmt:
		case T_IndexStmt:
		case T_RefreshMatViewStmt:
		case T_ReindexStmt:
		case T_VacuumStmt:
			return true;
		case T_ExplainStmt:
			return analyzes(castNode(ExplainStmt, command));
		default:
			return false;
	}
}

/* Whether a command is COPY ... TO, which goes through a table without a query. */
static bool
is_copied_out(Node *command)
{
	return IsA(command, CopyStmt) && !castNode(CopyStmt, command)->is_from;
}

/* Whether the queries that a command runs are as a client's would be. */
static bool
passes_on(Node *command)
{
	switch (nodeTag(command))
	{
		case T_CallStmt:
		case T_DoStmt:
		case T_ExecuteStmt:
		case T_ExplainStmt:
		case T_FetchStmt:
			return true;
		default:
			return is_copied_out(command);
	}
}

static void
static bool
is_discard_all(Node *command)
{
	return IsA(command, DiscardStmt) && castNode(DiscardStmt, command)->target == DISCARD_ALL;
}

end_statement(void)
{
	kept = false;
	admit_leave();
}

/* Before anything is planned: settings of the class, cut to its limits. */
static PlannedStmt *
plan(Query *query, const char *text, int options, ParamListInfo parameters)
{
	attach_before_statement();
	role_follow();
	if (level == 0 && is_a_session())
		(void) class_limits();
	class_apply();
	return previous_planner ? previous_planner(query, text, options, parameters) :
		standard_planner(query, text, options, parameters);
}

static void
start(QueryDesc *query, int flags)
{
	attach_before_statement();
	class_apply();
	level++;
	PG_TRY();
	{
		if (previous_start)
			previous_start(query, flags);
		else
			standard_ExecutorStart(query, flags);
	}
	PG_FINALLY();
	{
		level--;
	}
	PG_END_TRY();
}

#if PG_VERSION_NUM >= 180000
#define RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count
#define RUN_ARGUMENTS query, direction, count
#else
#define RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define RUN_ARGUMENTS query, direction, count, once
#endif

static void
run(RUN_PARAMETERS)
{
	bool		outermost = is_outermost();
	bool		keeps = outermost && changes_data(query);
	bool		gives_way = false;

	role_follow();
	if (outermost)
	{
		end_statement();
		admit_enter(!is_stored_at_commit());
	}
	if (!only_reads(query))
		io_leave();
	else if (writers == 0)
		gives_way = io_enter();
	level++;
	PG_TRY();
	{
		if (previous_run)
			previous_run(RUN_ARGUMENTS);
		else
			standard_ExecutorRun(RUN_ARGUMENTS);
		/* It may have called set_config('role', ...). */
		role_follow();
		if (outermost)
			kept = keeps;
	}
	PG_FINALLY();
	{
		level--;
		if (gives_way)
			io_leave();
		if (outermost && !kept)
			end_statement();
	}
	PG_END_TRY();
}

static void
finish(QueryDesc *query)
{
	level++;
	PG_TRY();
	{
		if (previous_finish)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		level--;
		if (level == 0 && kept)
			end_statement();
	/* A cursor's client may have set something since it was started. */
	class_apply();
	}
	PG_END_TRY();
}

static void
utility(PlannedStmt *statement, const char *text, bool read_only_tree,
		ProcessUtilityContext context, ParamListInfo parameters,
		QueryEnvironment *environment, DestReceiver *destination, QueryCompletion *completion)
{
	bool		enters = is_outermost() && computes(statement->utilityStmt);
	bool		writes = !passes_on(statement->utilityStmt);
	bool		gives_way = false;

	attach_before_statement();
	role_follow();
	if (enters)
	{
		end_statement();
		admit_enter(true);
	}
	if (writes)
	{
		io_leave();
		writers++;
	}
	else if (writers == 0 && is_copied_out(statement->utilityStmt))
		gives_way = io_enter();
	level++;
	PG_TRY();
	{
		if (previous_utility)
			previous_utility(statement, text, read_only_tree, context, parameters,
							 environment, destination, completion);
		else
			standard_ProcessUtility(statement, text, read_only_tree, context, parameters,
									environment, destination, completion);
		/* It may have been SET ROLE. */
		role_follow();
	}
	PG_FINALLY();
	{
		level--;
		if (writes)
			writers--;
		if (gives_way)
			io_leave();
		if (enters)
			end_statement();
	}
	PG_END_TRY();
}

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
		admit_worker_ends();
	else if (event == XACT_EVENT_ABORT && level == 0)
		end_statement();
}

/* In the postmaster, while it loads libraries. */
void
statement_preload(void)
{
	class_watch();
	RegisterXactCallback(at_end_of_transaction, NULL);
	previous_planner = planner_hook;
	planner_hook = plan;
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
	previous_run = ExecutorRun_hook;
	ExecutorRun_hook = run;
	previous_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
}
		if (is_discard_all(statement->utilityStmt))
			imposed_discard();
