/* postgres/giveway/giveway--0.4--0.5.sql */

-- complain if the script is sourced in psql rather than through ALTER EXTENSION
\echo Use "ALTER EXTENSION giveway UPDATE TO '0.5'" to load this file. \quit

CREATE FUNCTION giveway_role_settings(
	role regrole,
	OUT name text,
	OUT setting text,
	OUT from_role regrole)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_role_settings'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION giveway_role_settings(regrole) IS
	'what sessions that follow this role have from it and the roles it is a member of';
