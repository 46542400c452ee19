-- How often did time-sensitive work take a CPU from background work, and how long had it
-- waited for it since its wake-up?
--
-- One row for each pair of threads by name, the most frequent first, after one for all of
-- them. Latencies are of those preemptions that a wake-up led to ("woken").
WITH gave_way AS (
  SELECT
    extract_arg(arg_set_id, 'args.by_name') AS urgent,
    extract_arg(arg_set_id, 'args.name') AS background,
    extract_arg(arg_set_id, 'args.by_woken_us') AS us
  FROM slice
  WHERE name = 'background gives way'
),
counted AS (
  SELECT 0 AS place, 'all' AS urgent, 'all' AS background, us FROM gave_way
  UNION ALL
  SELECT 1, urgent, background, us FROM gave_way
),
ranked AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY place, urgent, background ORDER BY us IS NULL, us) AS nr,
    count(us) OVER (PARTITION BY place, urgent, background) AS woken
  FROM counted
)
SELECT
  urgent,
  background,
  count(*) AS preemptions,
  max(woken) AS woken,
  min(CASE WHEN nr * 100 >= woken * 50 THEN us END) AS p50_us,
  min(CASE WHEN nr * 100 >= woken * 99 THEN us END) AS p99_us,
  max(us) AS max_us
FROM ranked
GROUP BY place, urgent, background
ORDER BY place, preemptions DESC, urgent, background;
