-- Who waited longest for a CPU: the ten longest waits of each tier, and what each wait
-- began with. "at_ms" is since the trace began.
WITH waits AS (
  SELECT
    slice.category AS tier,
    slice.name AS wait,
    slice.dur,
    slice.ts - (SELECT min(ts) FROM slice) AS since,
    process.name AS process,
    thread.name AS thread,
    thread.tid,
    extract_arg(slice.arg_set_id, 'args.cgroup') AS cgroup,
    row_number() OVER (PARTITION BY slice.category ORDER BY slice.dur DESC, slice.ts) AS nr
  FROM slice
  JOIN thread_track ON slice.track_id = thread_track.id
  JOIN thread USING (utid)
  LEFT JOIN process USING (upid)
  WHERE slice.name IN ('waits (woken)', 'waits (preempted)')
)
SELECT tier, dur / 1e3 AS us, wait, since / 1e6 AS at_ms, process, thread, tid, cgroup
FROM waits
WHERE nr <= 10
ORDER BY tier DESC, nr;
