/* postgres/giveway_test/giveway_test--0.1.sql */

-- complain if the script is sourced in psql rather than through CREATE EXTENSION
\echo Use "CREATE EXTENSION giveway_test" to load this file. \quit

CREATE FUNCTION giveway_test_hold(
	kind text,
	locks integer[],
	cpu_s double precision,
	OUT acquire_s double precision,
	OUT total_s double precision)
AS 'MODULE_PATHNAME', 'giveway_test_hold'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION giveway_test_burn(cpu_s double precision)
RETURNS double precision
AS 'MODULE_PATHNAME', 'giveway_test_burn'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE FUNCTION giveway_test_cost(kind text, pairs integer)
RETURNS double precision
AS 'MODULE_PATHNAME', 'giveway_test_cost'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION giveway_test_reader(locks integer)
RETURNS text
AS 'MODULE_PATHNAME', 'giveway_test_reader'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION giveway_test_holders(waiter integer)
RETURNS integer[]
AS 'MODULE_PATHNAME', 'giveway_test_holders'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION giveway_test_stops_at_locks(pid integer, seconds double precision)
RETURNS boolean
AS 'MODULE_PATHNAME', 'giveway_test_stops_at_locks'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

-- Whoever may call these can stop the server.
REVOKE ALL ON FUNCTION giveway_test_hold(text, integer[], double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION giveway_test_burn(double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION giveway_test_cost(text, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION giveway_test_reader(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION giveway_test_holders(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION giveway_test_stops_at_locks(integer, double precision) FROM PUBLIC;
