/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * statement.c
 *		Which statements need a place in their class?
 *
 * A session of a class (class.c) takes a place (admit.c) for each statement that its
 * client sends, but for those that compute nothing: SET or LOCK never wait, and COMMIT
 * only for what it has to compute.
 *
 *		takes a place								runs in the place of what calls it
 *		rewriting and planning of a query,			functions, triggers, SPI
 *			start and outermost ExecutorRun()
 *			of a portal
 *		commands, but for computes_nothing()
 *		at COMMIT: rows of cursors WITH HOLD,
 *			deferred triggers in a procedural language
 *		functions called by PQfn()
 *
 * Parallel workers, autovacuum, WAL senders and background workers take none.  So whatever
 * a statement starts inside the server runs with the statement's place, or with none;
 * nothing waits for a place that it itself holds up.
 *
 * WHEN.  A place is held from rewriting to the end of the outermost ExecutorRun(), or for
 * a ProcessUtility(): between two FETCHes, or two portions of a suspended portal, others
 * may have it.  A statement that changes data keeps it until its triggers have run, in
 * ExecutorFinish().
 *
 * SPARE PLACES.  Nothing tells us that a client which has had a statement parsed or planned
 * does not have it run, that no further trigger is due at COMMIT, or that a function of
 * PQfn() has returned.  So places that are taken outside of runs and commands are spare:
 * they stay for what comes next, until the next command or the end of the transaction, and
 * another may take one over while its session waits for the client (admit.c).
 *
 *		level		calls of our hooks on the stack.  At 0, PortalStart() or PortalRun() has
 *					called us (ActivePortal is set), or something else has: the client's
 *					query is analyzed or planned, which its text shows, COMMIT goes on, or
 *					PQfn() calls a function
 *
 * BUFFER PINS.  A cursor that has been fetched from pins a page between FETCHes, and VACUUM
 * may wait for that with a place of the class.  So admit.c is told whether there may be
 * such a cursor.
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
 * INVARIANT.  At level 0 and outside of a statement there is no place but a spare one: an
 * error passes the hook that took it, or the end of the (sub)transaction takes it back; at
 * the end of the process, admit.c does.
 *
 * WEAKNESSES.  Parsing and analysis of a text take no place.  Neither do deferred triggers
 * in C, which are the checks of foreign keys and of deferred unique constraints: at COMMIT
 * they look up an index or so for each row that was changed with a place.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/syscache.h"

#include "giveway.h"

static post_parse_analyze_hook_type previous_analyze;
static planner_hook_type previous_planner;
static ExecutorStart_hook_type previous_start;
static ExecutorRun_hook_type previous_run;
static ExecutorFinish_hook_type previous_finish;
static ProcessUtility_hook_type previous_utility;
static needs_fmgr_hook_type previous_needs;
static fmgr_hook_type previous_call;
static object_access_hook_type previous_access;

/* How many of our hooks are on the stack. */
static int	level = 0;

/* How many commands are on the stack whose queries feed what they write. */
static int	writers = 0;

/* Whether the place is kept until ExecutorFinish(). */
static bool kept = false;

/* Whether a query has been run in part in this transaction, and may have pinned a page. */
static bool pins = false;

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

/* Whether a command runs nothing of its client's, nor goes through tables. */
static bool
computes_nothing(Node *command)
{
	switch (nodeTag(command))
	{
		case T_ClosePortalStmt:
		case T_DeallocateStmt:
		case T_DiscardStmt:
		case T_ListenStmt:
		case T_LockStmt:
		case T_NotifyStmt:
		case T_TransactionStmt:
		case T_UnlistenStmt:
		case T_VariableSetStmt:
		case T_VariableShowStmt:
			return true;
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

static bool
is_discard_all(Node *command)
{
	return IsA(command, DiscardStmt) && castNode(DiscardStmt, command)->target == DISCARD_ALL;
}

static void
end_statement(void)
{
	kept = false;
	admit_leave();
}

/* Take a place outside of a run or command, unless this is inside of one. */
static void
enter_spare(void)
{
	if (level == 0 && is_a_session())
		admit_enter(true, pins);
}

/* Whether a text is what the client has sent: not what foreign keys ask at COMMIT. */
static bool
is_clients(const char *text)
{
	return text != NULL && text == debug_query_string;
}

/* Before a query is rewritten, in which views may become much. */
static void
analyze(ParseState *state, Query *query, JumbleState *jumble)
{
	if (previous_analyze)
		previous_analyze(state, query, jumble);
	if (query->commandType != CMD_UTILITY && is_clients(state->p_sourcetext))
		enter_spare();
}

/* Before anything is planned: settings of the class, cut to its limits. */
static PlannedStmt *
plan(Query *query, const char *text, int options, ParamListInfo parameters)
{
	PlannedStmt *planned;

	attach_before_statement();
	role_follow();
	if (level == 0 && is_a_session())
		(void) class_limits();
	class_apply();
	if (is_clients(text))
		enter_spare();
	level++;
	PG_TRY();
	{
		planned = previous_planner ? previous_planner(query, text, options, parameters) :
			standard_planner(query, text, options, parameters);
	}
	PG_FINALLY();
	{
		level--;
	}
	PG_END_TRY();
	return planned;
}

static void
start(QueryDesc *query, int flags)
{
	attach_before_statement();
	class_apply();
	if (is_outermost())
		enter_spare();
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
	/* A cursor's client may have set something since it was started. */
	class_apply();
	if (outermost)
	{
		kept = false;
		admit_enter(false, pins);
	}
	if (count != 0)
		pins = true;
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
	}
	PG_END_TRY();
}

static void
utility(PlannedStmt *statement, const char *text, bool read_only_tree,
		ProcessUtilityContext context, ParamListInfo parameters,
		QueryEnvironment *environment, DestReceiver *destination, QueryCompletion *completion)
{
	bool		outermost = is_outermost();
	bool		enters = outermost && !computes_nothing(statement->utilityStmt);
	bool		writes = !passes_on(statement->utilityStmt);
	bool		gives_way = false;

	attach_before_statement();
	role_follow();
	if (outermost)
		end_statement();
	if (enters)
		admit_enter(false, pins);
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
		if (is_discard_all(statement->utilityStmt))
			imposed_discard();
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

/* Whether a function is in a procedural language.  Functions in SQL are left out: what is
 * watched is not made part of the query that calls it. */
static bool
is_procedural(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			language;

	if (!HeapTupleIsValid(tuple))
		return false;
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	ReleaseSysCache(tuple);
	return language != INTERNALlanguageId && language != ClanguageId &&
		language != SQLlanguageId;
}

/* Whether call() is to be told of calls of this function: it may be called by no statement
 * or command, that is at COMMIT, or by PQfn(). */
static bool
needs_call(Oid function)
{
	return (previous_needs && previous_needs(function)) ||
		(level == 0 && is_a_session() && is_procedural(function));
}

/* A function begins or ends, at any level: one that this is told of for whatever reason. */
static void
call(FmgrHookEventType event, FmgrInfo *function, Datum *private)
{
	if (event == FHET_START)
		enter_spare();
	if (previous_call)
		previous_call(event, function, private);
	level += event == FHET_START ? 1 : -1;
}

/* A function is about to be executed.  At level 0 that is PQfn(), whose functions in C and
 * in SQL call() is not told of. */
static void
accessed(ObjectAccessType access, Oid catalog, Oid object, int column, void *arg)
{
	if (previous_access)
		previous_access(access, catalog, object, column, arg);
	if (access == OAT_FUNCTION_EXECUTE)
		enter_spare();
}

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			admit_worker_ends();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			pins = false;
			/* Above 0 it is a procedure's. */
			if (level == 0)
				end_statement();
			return;
		default:
			return;
	}
}

static void
at_end_of_subtransaction(SubXactEvent event, SubTransactionId mine,
						 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && level == 0)
		end_statement();
}

/* In the postmaster, while it loads libraries. */
void
statement_preload(void)
{
	class_watch();
	RegisterXactCallback(at_end_of_transaction, NULL);
	RegisterSubXactCallback(at_end_of_subtransaction, NULL);
	previous_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = analyze;
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
	previous_needs = needs_fmgr_hook;
	needs_fmgr_hook = needs_call;
	previous_call = fmgr_hook;
	fmgr_hook = call;
	previous_access = object_access_hook;
	object_access_hook = accessed;
}
