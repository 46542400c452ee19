-- What each way of setting leads to, as the table has it.
CREATE EXTENSION giveway;
SELECT value <> 'mapped' AS no_table FROM giveway_status() WHERE item = 'table' \gset
\if :no_table
-- Without a table all of it is allowed, and there are no slots.
SET giveway.tier = time_sensitive;
BEGIN; SET LOCAL giveway.weight = 7; COMMIT;
SELECT value FROM giveway_status() WHERE item = 'table';
SELECT count(*) FROM giveway_slots();
SELECT count(*) FROM giveway_stat_activity WHERE pid = pg_backend_pid() AND slot IS NULL;
DROP EXTENSION giveway;
\quit
\endif
CREATE VIEW mine AS SELECT tier, weight FROM giveway_slots() WHERE pid = pg_backend_pid();
TABLE mine;

-- SET and RESET
SET giveway.tier = time_sensitive;
SET giveway.weight = 200;
TABLE mine;
RESET giveway.weight;
TABLE mine;
DISCARD ALL;
TABLE mine;

-- SET LOCAL ends with its transaction, however that ends
BEGIN;
SET LOCAL giveway.tier = time_sensitive;
TABLE mine;
COMMIT;
TABLE mine;
BEGIN;
SET LOCAL giveway.weight = 5;
TABLE mine;
ROLLBACK;
TABLE mine;

-- and so does SET, if it is rolled back
BEGIN;
SET giveway.weight = 6;
TABLE mine;
ROLLBACK;
TABLE mine;
BEGIN;
SET giveway.weight = 6;
SELECT 1 / 0;
ROLLBACK;
TABLE mine;

-- savepoints
BEGIN;
SET LOCAL giveway.weight = 11;
SAVEPOINT a;
SET LOCAL giveway.weight = 12;
SAVEPOINT b;
SET LOCAL giveway.weight = 13;
TABLE mine;
ROLLBACK TO b;
TABLE mine;
RELEASE a;
TABLE mine;
ROLLBACK;
TABLE mine;

-- functions with a setting of their own, nested and left by an error
CREATE FUNCTION report() RETURNS text LANGUAGE plpgsql
	SET giveway.tier = background SET giveway.weight = 3
	AS $$ BEGIN RETURN (SELECT tier || ' ' || weight FROM mine); END $$;
CREATE FUNCTION urgent() RETURNS text LANGUAGE plpgsql
	SET giveway.tier = time_sensitive
	AS $$ DECLARE inner_one text := report(); BEGIN
		RETURN (SELECT tier || ' ' || weight FROM mine) || ', inside ' || inner_one; END $$;
CREATE FUNCTION failing() RETURNS text LANGUAGE plpgsql
	SET giveway.weight = 4
	AS $$ BEGIN RAISE EXCEPTION 'with weight %', (SELECT weight FROM mine); END $$;
SET giveway.weight = 20;
SELECT urgent();
TABLE mine;
SELECT failing();
TABLE mine;
DO $$ BEGIN PERFORM failing(); EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE 'outside again: %', (SELECT weight FROM mine); END $$;
RESET ALL;

-- COMMIT AND CHAIN, procedures that commit
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$ BEGIN
	SET LOCAL giveway.weight = 8;
	RAISE NOTICE 'before: %', (SELECT weight FROM mine);
	COMMIT;
	RAISE NOTICE 'after: %', (SELECT weight FROM mine);
END $$;
CALL batch();
BEGIN;
SET LOCAL giveway.weight = 9;
COMMIT AND CHAIN;
TABLE mine;
COMMIT;

-- ceilings: the lower one holds, at once and again when it is lifted
SET giveway.tier = time_sensitive;
SET giveway.weight = 1000;
SET giveway.max_weight = 400;
TABLE mine;
SET giveway.max_tier = background;
TABLE mine;
SHOW giveway.tier;
SET giveway.weight = 300;
TABLE mine;
RESET giveway.max_tier;
RESET giveway.max_weight;
TABLE mine;
BEGIN;
SET LOCAL giveway.max_tier = background;
TABLE mine;
COMMIT;
TABLE mine;

-- off: as the cgroup is
SET giveway.enabled = off;
TABLE mine;
SET giveway.weight = 77;
TABLE mine;
SET giveway.enabled = on;
TABLE mine;
RESET ALL;

-- who sees what
CREATE ROLE regress_giveway;
GRANT SELECT ON mine TO regress_giveway;
SET ROLE regress_giveway;
SELECT count(*) FROM giveway_slots() WHERE pid = pg_backend_pid();
SELECT count(*), count(tier) FROM giveway_stat_activity WHERE pid = pg_backend_pid();
RESET ROLE;
GRANT pg_read_all_stats TO regress_giveway;
SET ROLE regress_giveway;
SELECT count(*) FROM giveway_slots() WHERE pid = pg_backend_pid();
RESET ROLE;
SELECT backend_type, tier, weight, slot > 0 AS slot, lock_awaited
FROM giveway_stat_activity WHERE pid = pg_backend_pid();
SELECT item, value FROM giveway_status() WHERE item NOT IN ('slots', 'hints', 'scheduler');

-- figures are UFS's: null without it
SELECT num_nulls(cpu_ms, preemptions, boosts, boosted_ms, boosts_expired, tier_refused) =
	CASE WHEN value = 'UFS reads the table' THEN 0 ELSE 6 END AS as_it_should_be
FROM giveway_stat_activity, giveway_status()
WHERE pid = pg_backend_pid() AND item = 'scheduler';

DROP VIEW mine CASCADE;
DROP FUNCTION report(), urgent(), failing();
DROP PROCEDURE batch();
DROP ROLE regress_giveway;
DROP EXTENSION giveway;
