/* postgres/giveway/giveway--0.2--0.3.sql */

-- complain if the script is sourced in psql rather than through ALTER EXTENSION
\echo Use "ALTER EXTENSION giveway UPDATE TO '0.3'" to load this file. \quit

-- Rights are checked inside, as those of pg_cancel_backend() are.
CREATE FUNCTION giveway_set(
	pid integer,
	tier text DEFAULT NULL,
	weight integer DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'giveway_set'
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION giveway_set(integer, text, integer) IS
	'imposes a tier and a weight on a running session; null leaves them to the session';

CREATE FUNCTION giveway_imposed(
	OUT pid integer,
	OUT tier text,
	OUT weight integer,
	OUT by_right boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_imposed'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_imposed() IS
	'what giveway_set() has imposed on sessions';

CREATE OR REPLACE VIEW giveway_stat_activity AS
	SELECT a.pid, a.datname, a.usename, a.application_name, a.backend_type,
		   s.tier, s.weight, s.slot, s.locks_held, s.lock_awaited,
		   a.wait_event_type, a.wait_event,
		   s.cpu_ms, s.preemptions, s.wakeup_delay_ms,
		   s.boosts, s.boosted_ms, s.boosts_expired, s.tier_refused,
		   i.tier AS imposed_tier, i.weight AS imposed_weight
	FROM pg_stat_activity a
		LEFT JOIN giveway_slots() s USING (pid)
		LEFT JOIN giveway_imposed() i USING (pid);
