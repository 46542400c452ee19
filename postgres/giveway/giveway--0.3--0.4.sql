/* postgres/giveway/giveway--0.3--0.4.sql */

-- complain if the script is sourced in psql rather than through ALTER EXTENSION
\echo Use "ALTER EXTENSION giveway UPDATE TO '0.4'" to load this file. \quit

CREATE TABLE giveway_class (
	class name PRIMARY KEY CHECK (class <> ''),
	concurrency integer CHECK (concurrency >= 0),
	queue_timeout interval DEFAULT '5 minutes' CHECK (queue_timeout >= '0'),
	demote_after interval CHECK (demote_after > '0'),
	work_mem integer CHECK (work_mem BETWEEN 64 AND 2147483647),
	max_parallel_workers_per_gather integer
		CHECK (max_parallel_workers_per_gather BETWEEN 0 AND 1024));

COMMENT ON TABLE giveway_class IS 'classes of sessions and what they are allowed';
COMMENT ON COLUMN giveway_class.concurrency IS
	'how many statements run at a time; null: any number';
COMMENT ON COLUMN giveway_class.queue_timeout IS
	'how long a statement waits for a place; null: for ever';
COMMENT ON COLUMN giveway_class.demote_after IS
	'after how much CPU time a statement goes on in the background; null: never';
COMMENT ON COLUMN giveway_class.work_mem IS
	'work_mem in kB: what sessions have unless they ask for less; null: their own';
COMMENT ON COLUMN giveway_class.max_parallel_workers_per_gather IS
	'the same for max_parallel_workers_per_gather';

CREATE TABLE giveway_class_role (
	role regrole PRIMARY KEY,
	class name NOT NULL
		REFERENCES giveway_class ON UPDATE CASCADE ON DELETE CASCADE);

COMMENT ON TABLE giveway_class_role IS
	'which class a role''s sessions are of; role ''-'': sessions of no other class';

-- A role that is gone is left out: its number may be another role's elsewhere.
SELECT pg_catalog.pg_extension_config_dump('giveway_class', '');
SELECT pg_catalog.pg_extension_config_dump('giveway_class_role',
	'WHERE role = 0 OR EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)');

CREATE FUNCTION giveway_class_changed()
RETURNS trigger
AS 'MODULE_PATHNAME', 'giveway_class_changed'
LANGUAGE C;

COMMENT ON FUNCTION giveway_class_changed() IS 'has sessions read their class anew';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON giveway_class
	FOR EACH STATEMENT EXECUTE FUNCTION giveway_class_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON giveway_class_role
	FOR EACH STATEMENT EXECUTE FUNCTION giveway_class_changed();
-- However the rows come.
ALTER TABLE giveway_class ENABLE ALWAYS TRIGGER changed;
ALTER TABLE giveway_class_role ENABLE ALWAYS TRIGGER changed;

CREATE FUNCTION giveway_class_usage(
	OUT class name,
	OUT running integer,
	OUT waiting integer,
	OUT admitted bigint,
	OUT waited bigint,
	OUT waited_ms double precision,
	OUT timeouts bigint,
	OUT cancelled bigint,
	OUT let_in bigint,
	OUT demotions bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_class_usage'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_class_usage() IS
	'what this database''s classes have done since the server was started';

CREATE FUNCTION giveway_class_sessions(
	OUT pid integer,
	OUT class name,
	OUT state text,
	OUT since timestamp with time zone,
	OUT demoted boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_class_sessions'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_class_sessions() IS
	'which sessions have a place in a class, or wait for one';

CREATE VIEW giveway_stat_classes AS
	SELECT c.class, c.concurrency,
		   coalesce(u.running, 0) AS running, coalesce(u.waiting, 0) AS waiting,
		   coalesce(u.admitted, 0) AS admitted, coalesce(u.waited, 0) AS waited,
		   coalesce(u.waited_ms, 0) AS waited_ms, coalesce(u.timeouts, 0) AS timeouts,
		   coalesce(u.cancelled, 0) AS cancelled, coalesce(u.let_in, 0) AS let_in,
		   coalesce(u.demotions, 0) AS demotions
	FROM giveway_class c LEFT JOIN giveway_class_usage() u USING (class);

GRANT SELECT ON giveway_stat_classes TO PUBLIC;

CREATE OR REPLACE VIEW giveway_stat_activity AS
	SELECT a.pid, a.datname, a.usename, a.application_name, a.backend_type,
		   s.tier, s.weight, s.slot, s.locks_held, s.lock_awaited,
		   a.wait_event_type, a.wait_event,
		   s.cpu_ms, s.preemptions, s.wakeup_delay_ms,
		   s.boosts, s.boosted_ms, s.boosts_expired, s.tier_refused,
		   i.tier AS imposed_tier, i.weight AS imposed_weight,
		   c.class, c.state AS class_state, c.demoted
	FROM pg_stat_activity a
		LEFT JOIN giveway_slots() s USING (pid)
		LEFT JOIN giveway_imposed() i USING (pid)
		LEFT JOIN giveway_class_sessions() c USING (pid);
