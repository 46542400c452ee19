-- Which background threads ran ahead of their tier because time-sensitive work waited for
-- a lock that they held, how often and for how long?
--
-- Read from hint slots a hundred times a second: "boosted_ms" is exact, when it was is not.
SELECT
  thread.name AS thread,
  sum(extract_arg(slice.arg_set_id, 'args.boosts_begun')) AS boosts,
  sum(extract_arg(slice.arg_set_id, 'args.boosted_ns')) / 1e6 AS boosted_ms,
  count(DISTINCT extract_arg(slice.arg_set_id, 'args.lock')) AS locks
FROM slice
JOIN thread_track ON slice.track_id = thread_track.id
JOIN thread USING (utid)
WHERE slice.name = 'boosted'
GROUP BY thread.utid
ORDER BY boosts DESC, thread;
