-- Which tier and cgroup had how much of the CPUs, and how often did it lose one that it
-- would have gone on using?
--
-- "percent" is of one CPU, over the length of the trace. The row of a tier has 'all' as its
-- cgroup; a thread that had ended before it was looked up counts there only.
WITH ran AS (
  SELECT
    category AS tier,
    extract_arg(arg_set_id, 'args.cgroup') AS cgroup,
    extract_arg(arg_set_id, 'args.preempted') AS preempted,
    dur
  FROM slice
  WHERE name = 'runs'
),
length AS (
  SELECT max(ts + dur) - min(ts) AS ns FROM slice
),
counted AS (
  SELECT 0 AS place, tier, 'all' AS cgroup, preempted, dur FROM ran
  UNION ALL
  SELECT 1, tier, cgroup, preempted, dur FROM ran WHERE cgroup IS NOT NULL
)
SELECT
  tier,
  cgroup,
  sum(dur) / 1e6 AS run_ms,
  100.0 * sum(dur) / (SELECT ns FROM length) AS percent,
  count(*) AS runs,
  sum(preempted) AS preempted
FROM counted
GROUP BY place, tier, cgroup
ORDER BY place, tier DESC, run_ms DESC, cgroup;
