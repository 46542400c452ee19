-- For how long did background work have a CPU while time-sensitive work waited for one?
--
-- Every preemption takes some microseconds, which are in "inverted_ms": what counts is
-- "longest_us". It also has waits of threads that may not run on the CPU in question
-- (their affinity is not in the trace), and background work that holds a lock.
WITH edges AS (
  SELECT ts, 1 AS waiting, 0 AS running
  FROM slice
  WHERE name IN ('waits (woken)', 'waits (preempted)') AND category = 'time_sensitive'
  UNION ALL
  SELECT ts + dur, -1, 0
  FROM slice
  WHERE name IN ('waits (woken)', 'waits (preempted)') AND category = 'time_sensitive'
  UNION ALL
  SELECT ts, 0, 1 FROM slice WHERE name = 'runs' AND category = 'background'
  UNION ALL
  SELECT ts + dur, 0, -1 FROM slice WHERE name = 'runs' AND category = 'background'
),
steps AS (
  SELECT ts, sum(waiting) AS waiting, sum(running) AS running FROM edges GROUP BY ts
),
spans AS (
  SELECT
    ts,
    lead(ts) OVER (ORDER BY ts) - ts AS dur,
    sum(waiting) OVER (ORDER BY ts) AS waiting,
    sum(running) OVER (ORDER BY ts) AS running
  FROM steps
),
-- Spans that follow one another are one inversion: those between two that are none.
marked AS (
  SELECT *, sum(NOT (waiting > 0 AND running > 0)) OVER (ORDER BY ts) AS inversion
  FROM spans
),
inversions AS (
  SELECT sum(dur) AS dur
  FROM marked
  WHERE waiting > 0 AND running > 0
  GROUP BY inversion
)
SELECT
  (SELECT coalesce(sum(dur), 0) / 1e6 FROM spans WHERE waiting > 0) AS waiting_ms,
  coalesce(sum(dur), 0) / 1e6 AS inverted_ms,
  count(*) AS inversions,
  coalesce(max(dur), 0) / 1e3 AS longest_us
FROM inversions;
