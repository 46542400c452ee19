-- How long did threads wait for a CPU after they were woken up, by tier and cgroup?
--
-- Wake-ups after which the thread ran within the trace. The row of a tier has 'all' as its
-- cgroup; a thread that had ended before it was looked up counts there only.
WITH woken AS (
  SELECT
    category AS tier,
    extract_arg(arg_set_id, 'args.cgroup') AS cgroup,
    dur / 1e3 AS us
  FROM slice
  WHERE name = 'waits (woken)'
),
counted AS (
  SELECT 0 AS place, tier, 'all' AS cgroup, us FROM woken
  UNION ALL
  SELECT 1, tier, cgroup, us FROM woken WHERE cgroup IS NOT NULL
),
ranked AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY place, tier, cgroup ORDER BY us) AS nr,
    count(*) OVER (PARTITION BY place, tier, cgroup) AS n
  FROM counted
)
SELECT
  tier,
  cgroup,
  count(*) AS wake_ups,
  avg(us) AS mean_us,
  min(CASE WHEN nr * 100 >= n * 50 THEN us END) AS p50_us,
  min(CASE WHEN nr * 100 >= n * 99 THEN us END) AS p99_us,
  max(us) AS max_us
FROM ranked
GROUP BY place, tier, cgroup
ORDER BY place, tier DESC, wake_ups DESC, cgroup;
