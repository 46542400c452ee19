-- How many events are missing? Unless it is 0, the other answers are too low: record
-- again with a larger --buffer-kib.
SELECT coalesce(sum(extract_arg(arg_set_id, 'args.events')), 0) AS events
FROM slice
WHERE name = 'events lost';
