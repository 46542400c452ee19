-- What roles say of the tier of sessions that follow them, as the table has it.
CREATE EXTENSION giveway;
SHOW giveway.follow_role;
SHOW giveway.role_raises;

-- only superusers decide whether
CREATE ROLE regress_alice;
SET ROLE regress_alice;
SET giveway.follow_role = current;
SET giveway.role_raises = on;
ALTER ROLE regress_alice SET giveway.follow_role = membership;
RESET ROLE;
SET giveway.follow_role = 'both';

-- whose word counts: a role's own, here before everywhere, before that of its groups, of
-- which the highest
CREATE ROLE regress_day;
CREATE ROLE regress_night;
CREATE ROLE regress_week IN ROLE regress_night;
GRANT regress_day, regress_week TO regress_alice;
SELECT * FROM giveway_role_settings('regress_alice');
ALTER ROLE regress_night SET giveway.tier = background;
ALTER ROLE regress_night SET giveway.weight = 30;
ALTER ROLE regress_night SET giveway.max_weight = 400;
ALTER ROLE regress_night SET work_mem = '1MB';
SELECT * FROM giveway_role_settings('regress_alice');
ALTER ROLE regress_day SET giveway.tier = time_sensitive;
ALTER ROLE regress_day SET giveway.weight = 20;
SELECT * FROM giveway_role_settings('regress_alice');
ALTER ROLE regress_day IN DATABASE template1 SET giveway.weight = 9999;
ALTER ROLE regress_alice SET giveway.weight = 3;
SELECT * FROM giveway_role_settings('regress_alice');
SELECT format('ALTER ROLE regress_alice IN DATABASE %I SET giveway.weight = 2', current_database()) \gexec
SELECT * FROM giveway_role_settings('regress_alice');
ALTER ROLE regress_alice NOINHERIT;
CREATE ROLE regress_bob;
SELECT * FROM giveway_role_settings('regress_bob');
GRANT regress_day TO regress_bob;
ALTER ROLE regress_bob SUPERUSER;
SELECT * FROM giveway_role_settings('regress_bob');
ALTER ROLE regress_bob NOSUPERUSER;
SELECT * FROM giveway_role_settings('regress_bob');
REVOKE regress_day FROM regress_bob;
SELECT * FROM giveway_role_settings('-');
SELECT * FROM giveway_role_settings(NULL);
ALTER ROLE regress_alice RESET ALL;
SELECT format('ALTER ROLE regress_alice IN DATABASE %I RESET ALL', current_database()) \gexec
SELECT * FROM giveway_role_settings('regress_night');

SELECT value <> 'mapped' AS no_table FROM giveway_status() WHERE item = 'table' \gset
\if :no_table
DROP ROLE regress_alice, regress_bob, regress_day, regress_night, regress_week;
DROP EXTENSION giveway;
\quit
\endif
-- These roles may not see the slot themselves.
CREATE FUNCTION slot(OUT tier text, OUT weight int) LANGUAGE sql SECURITY DEFINER
	AS 'SELECT tier, weight FROM giveway_slots() WHERE pid = pg_backend_pid()';
CREATE VIEW mine AS SELECT * FROM slot();
GRANT SELECT ON mine TO PUBLIC;
GRANT CREATE ON SCHEMA public TO PUBLIC;
ALTER ROLE regress_day SET giveway.weight = 20;
-- Before the grant: from PostgreSQL 16 on it is the grant that inherits or not.
ALTER ROLE regress_bob NOINHERIT;
GRANT regress_day, regress_night TO regress_bob;

-- off: nothing happens
SET ROLE regress_day;
TABLE mine;
RESET ROLE;

-- current: SET ROLE and its end
SET giveway.follow_role = current;
TABLE mine;
SET ROLE regress_day;
TABLE mine;
SET ROLE regress_night;
TABLE mine;
SET ROLE regress_bob;
TABLE mine;
SET ROLE none;
TABLE mine;
BEGIN;
SET LOCAL ROLE regress_night;
TABLE mine;
COMMIT;
TABLE mine;
BEGIN;
SET LOCAL ROLE regress_night;
SELECT 1 / 0;
ROLLBACK;
TABLE mine;
BEGIN;
SET ROLE regress_night;
ROLLBACK;
TABLE mine;
BEGIN;
SELECT set_config('role', 'regress_day', true);
TABLE mine;
SAVEPOINT a;
SET LOCAL ROLE regress_night;
TABLE mine;
ROLLBACK TO a;
TABLE mine;
SAVEPOINT b;
SET LOCAL ROLE regress_night;
RELEASE b;
TABLE mine;
COMMIT AND CHAIN;
TABLE mine;
COMMIT;

-- SET SESSION AUTHORIZATION
SET SESSION AUTHORIZATION regress_day;
TABLE mine;
RESET SESSION AUTHORIZATION;
TABLE mine;
SET SESSION AUTHORIZATION regress_bob;
SET ROLE regress_night;
TABLE mine;
RESET ROLE;
TABLE mine;
SET ROLE regress_day;
DISCARD ALL;
SET giveway.follow_role = current;
TABLE mine;

-- functions: their SET clause counts, their owner does not
CREATE FUNCTION seen() RETURNS text LANGUAGE plpgsql
	AS $$ BEGIN RETURN (SELECT tier || ' ' || weight FROM mine); END $$;
CREATE FUNCTION at_night() RETURNS text LANGUAGE plpgsql SET role = regress_night
	AS $$ BEGIN RETURN seen(); END $$;
CREATE FUNCTION of_night() RETURNS text LANGUAGE plpgsql SECURITY DEFINER
	AS $$ BEGIN RETURN current_user || ' ' || seen(); END $$;
ALTER FUNCTION of_night() OWNER TO regress_night;
CREATE FUNCTION goes_on(what text) RETURNS text LANGUAGE plpgsql
	AS $$ BEGIN SET LOCAL ROLE regress_night; RETURN seen(); END $$;
CREATE FUNCTION fails() RETURNS text LANGUAGE plpgsql SET role = regress_night
	AS $$ BEGIN RAISE EXCEPTION 'seen: %', seen(); END $$;
SET ROLE regress_day;
SELECT seen(), at_night(), seen() AS after;
SELECT of_night();
SELECT fails();
TABLE mine;
DO $$ BEGIN PERFORM fails(); EXCEPTION WHEN OTHERS THEN RAISE NOTICE 'outside: %', seen(); END $$;
DO $$ BEGIN SET LOCAL ROLE regress_night; RAISE NOTICE '%', seen(); RAISE EXCEPTION 'undone';
	EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', seen(); END $$;
BEGIN;
SELECT goes_on('');
TABLE mine;
COMMIT;
TABLE mine;
-- a cursor runs as whoever fetches
BEGIN;
DECLARE c CURSOR FOR SELECT seen() FROM generate_series(1, 2);
FETCH c;
SET LOCAL ROLE regress_night;
FETCH c;
COMMIT;
-- a procedure that commits
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$ BEGIN
	SET LOCAL ROLE regress_night;
	RAISE NOTICE 'before: %', seen();
	COMMIT;
	RAISE NOTICE 'after: %', seen();
END $$;
CALL batch();
RESET ROLE;

-- the session's own settings go before, ceilings hold
SET ROLE regress_night;
SET giveway.weight = 77;
TABLE mine;
SET giveway.tier = time_sensitive;
TABLE mine;
RESET ROLE;
ALTER ROLE regress_night SET giveway.max_tier = background;
SET ROLE regress_night;
SET giveway.weight = 9999;
TABLE mine;
RESET giveway.tier;
RESET giveway.weight;
RESET ROLE;
ALTER ROLE regress_night RESET giveway.max_tier;

-- a role without settings has what its session's role has
CREATE ROLE regress_plain;
GRANT regress_plain TO regress_night;
SET SESSION AUTHORIZATION regress_night;
SET ROLE regress_plain;
TABLE mine;
RESET SESSION AUTHORIZATION;
SET ROLE regress_plain;
TABLE mine;
RESET ROLE;

-- no way above a ceiling but by an administrator's leave
ALTER ROLE regress_bob SET giveway.max_tier = background;
ALTER ROLE regress_bob SET giveway.max_weight = 10;
ALTER ROLE regress_day SET giveway.max_tier = time_sensitive;
ALTER ROLE regress_day SET giveway.max_weight = 5000;
SET SESSION AUTHORIZATION regress_bob;
SET ROLE regress_day;
TABLE mine;
SET giveway.tier = time_sensitive;
SET giveway.weight = 5000;
TABLE mine;
SET giveway.role_raises = on;
RESET SESSION AUTHORIZATION;
RESET giveway.tier;
RESET giveway.weight;
SET giveway.role_raises = on;
SET SESSION AUTHORIZATION regress_bob;
TABLE mine;
SET ROLE regress_day;
TABLE mine;
RESET ROLE;
TABLE mine;
RESET SESSION AUTHORIZATION;
-- what an administrator sets in the session stays
SET giveway.max_weight = 4;
SET SESSION AUTHORIZATION regress_bob;
SET ROLE regress_day;
TABLE mine;
RESET SESSION AUTHORIZATION;
RESET giveway.max_weight;
RESET giveway.role_raises;
ALTER ROLE regress_bob RESET ALL;

-- membership: the session's role and its groups, whatever is current
SET giveway.follow_role = membership;
REVOKE regress_day, regress_night FROM regress_bob;
ALTER ROLE regress_bob INHERIT;
GRANT regress_day, regress_night TO regress_bob;
SET SESSION AUTHORIZATION regress_bob;
TABLE mine;
SET ROLE regress_night;
TABLE mine;
RESET SESSION AUTHORIZATION;
REVOKE regress_day FROM regress_bob;
SET SESSION AUTHORIZATION regress_bob;
TABLE mine;
RESET SESSION AUTHORIZATION;
TABLE mine;
BEGIN;
SET LOCAL giveway.follow_role = current;
SET LOCAL ROLE regress_night;
TABLE mine;
RESET ROLE;
SET LOCAL giveway.follow_role = off;
SET LOCAL ROLE regress_night;
TABLE mine;
COMMIT;
TABLE mine;

-- changes: in this transaction, undone, a role renamed and dropped
SET giveway.follow_role = current;
BEGIN;
SET LOCAL ROLE regress_night;
TABLE mine;
RESET ROLE;
ALTER ROLE regress_night SET giveway.weight = 31;
SET LOCAL ROLE regress_night;
TABLE mine;
ROLLBACK;
SET ROLE regress_night;
TABLE mine;
RESET ROLE;
ALTER ROLE regress_night RENAME TO regress_late;
SET ROLE regress_late;
TABLE mine;
RESET ROLE;
SET ROLE regress_plain;
BEGIN;
SET LOCAL ROLE none;
DROP ROLE regress_plain;
COMMIT;
TABLE mine;
RESET ROLE;

-- off with the rest, and again
SET ROLE regress_late;
SET SESSION AUTHORIZATION DEFAULT;
SET giveway.enabled = off;
SET ROLE regress_late;
TABLE mine;
RESET ROLE;
SET giveway.enabled = on;
SET ROLE regress_late;
TABLE mine;
RESET ROLE;
RESET ALL;
TABLE mine;

DROP FUNCTION seen(), at_night(), of_night(), goes_on(text), fails();
DROP PROCEDURE batch();
DROP VIEW mine;
DROP FUNCTION slot();
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
DROP ROLE regress_alice, regress_bob, regress_day, regress_late, regress_week;
DROP EXTENSION giveway;
