/* postgres/giveway/giveway--0.1--0.2.sql */

-- complain if the script is sourced in psql rather than through ALTER EXTENSION
\echo Use "ALTER EXTENSION giveway UPDATE TO '0.2'" to load this file. \quit

-- Both speak of the calling process, which a parallel worker is not.
ALTER FUNCTION giveway_slots() PARALLEL RESTRICTED;
ALTER FUNCTION giveway_status() PARALLEL RESTRICTED;

CREATE FUNCTION giveway_slot_usage(
	OUT slots integer,
	OUT used integer,
	OUT used_here integer,
	OUT without_room bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'giveway_slot_usage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION giveway_slot_usage() IS
	'how full the table is, and how many of this cluster''s processes found no room';

CREATE VIEW giveway_stat_slots AS SELECT * FROM giveway_slot_usage();

GRANT SELECT ON giveway_stat_slots TO PUBLIC;
