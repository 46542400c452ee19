/* postgres/giveway/giveway--0.1.sql */

-- complain if the script is sourced in psql rather than through CREATE EXTENSION
\echo Use "CREATE EXTENSION giveway" to load this file. \quit

CREATE FUNCTION giveway_slots(
	OUT pid integer,
	OUT slot integer,
	OUT tier text,
	OUT weight integer,
	OUT locks_held integer,
	OUT lock_awaited text,
	OUT cpu_ms double precision,
	OUT preemptions bigint,
	OUT wakeup_delay_ms double precision,
	OUT boosts bigint,
	OUT boosted_ms double precision,
	OUT boosts_expired bigint,
	OUT tier_refused bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_slots'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_slots() IS
	'what this cluster''s processes tell UFS, and what UFS reports of them';

CREATE FUNCTION giveway_status(
	OUT item text,
	OUT value text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_status'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_status() IS
	'what of Giveway works in this session, and what to do about what does not';

-- A process without a slot is in its cgroup's tier: its columns are null.
CREATE VIEW giveway_stat_activity AS
	SELECT a.pid, a.datname, a.usename, a.application_name, a.backend_type,
		   s.tier, s.weight, s.slot, s.locks_held, s.lock_awaited,
		   a.wait_event_type, a.wait_event,
		   s.cpu_ms, s.preemptions, s.wakeup_delay_ms,
		   s.boosts, s.boosted_ms, s.boosts_expired, s.tier_refused
	FROM pg_stat_activity a LEFT JOIN giveway_slots() s USING (pid);

GRANT SELECT ON giveway_stat_activity TO PUBLIC;
