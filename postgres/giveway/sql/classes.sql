-- Classes, as their tables take them and as a session of one sees them.
CREATE EXTENSION giveway;
CREATE ROLE regress_clerk;

-- nonsense is refused
INSERT INTO giveway_class (class, concurrency) VALUES ('desk', -1);
INSERT INTO giveway_class (class, queue_timeout) VALUES ('desk', '-1 s');
INSERT INTO giveway_class (class, demote_after) VALUES ('desk', '0');
INSERT INTO giveway_class (class, work_mem) VALUES ('desk', 63);
INSERT INTO giveway_class (class) VALUES ('');
INSERT INTO giveway_class_role VALUES ('regress_clerk', 'desk');
INSERT INTO giveway_class (class) VALUES ('desk');
TABLE giveway_class;
INSERT INTO giveway_class_role VALUES ('regress_clerk', 'desk'), ('-', 'desk');
TABLE giveway_class_role;

-- settings: the default, and the most
UPDATE giveway_class SET work_mem = 2048, max_parallel_workers_per_gather = 0;
SET SESSION AUTHORIZATION regress_clerk;
SELECT current_setting('work_mem'), current_setting('max_parallel_workers_per_gather');
SET work_mem = '1MB';
SELECT current_setting('work_mem');
SET work_mem = '1GB';
SELECT current_setting('work_mem');
RESET work_mem;
UPDATE giveway_class SET concurrency = 100;
RESET SESSION AUTHORIZATION;

-- no place: nothing that computes runs, the rest does
UPDATE giveway_class SET concurrency = 0, queue_timeout = '0';
SET SESSION AUTHORIZATION regress_clerk;
SELECT 1;
BEGIN;
SHOW giveway.tier;
DECLARE c CURSOR FOR SELECT 1;
ROLLBACK;
EXPLAIN (COSTS off) SELECT 1;
EXPLAIN (ANALYZE, COSTS off) SELECT 1;
COPY (SELECT 1) TO STDOUT;
DO 'BEGIN END';
PREPARE p AS SELECT 1;
RESET SESSION AUTHORIZATION;
SELECT class, concurrency, running, waiting, timeouts, let_in, demotions FROM giveway_stat_classes;
SELECT count(*) FROM giveway_class_sessions();
SET giveway.classes = off;
SET SESSION AUTHORIZATION regress_clerk;
SELECT 1;
RESET SESSION AUTHORIZATION;
RESET giveway.classes;

-- a class that goes takes its roles along
UPDATE giveway_class SET class = 'bench';
TABLE giveway_class_role;
DELETE FROM giveway_class;
TABLE giveway_class_role;
DROP EXTENSION giveway;
DROP ROLE regress_clerk;
