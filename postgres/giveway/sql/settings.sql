-- What can be set, by whom, and what is said about the rest.
CREATE EXTENSION giveway;
SHOW giveway.tier;
SHOW giveway.weight;
SHOW giveway.max_tier;
SHOW giveway.max_weight;
SHOW giveway.hints;
SHOW giveway.heavyweight_hints;
SHOW giveway.system_processes;

-- bad values
SET giveway.tier = 'urgent';
SET giveway.max_tier = 'cgroup';
SET giveway.weight = 0;
SET giveway.weight = 10001;
SET giveway.hints = 'maybe';
SET giveway.wieght = 5;
ALTER SYSTEM SET giveway.system_processes = 'walwriter';
ALTER SYSTEM SET giveway.system_processes = 'walwriter=urgent';
ALTER SYSTEM SET giveway.system_processes = 'wal writer=background';

-- ordinary users
CREATE ROLE regress_giveway;
SET ROLE regress_giveway;
SET giveway.tier = time_sensitive;
SET giveway.weight = 10000;
SET giveway.max_tier = time_sensitive;
SET giveway.max_weight = 10000;
SET giveway.enabled = off;
SET giveway.hints = off;
SET giveway.heavyweight_hints = on;
ALTER ROLE regress_giveway SET giveway.max_tier = time_sensitive;
RESET ROLE;

-- what has been granted
GRANT SET ON PARAMETER giveway.max_weight TO regress_giveway;
SET ROLE regress_giveway;
SET giveway.max_weight = 5000;
RESET ROLE;
REVOKE SET ON PARAMETER giveway.max_weight FROM regress_giveway;
RESET ALL;

-- as the server lists them
SELECT name, context, vartype, boot_val FROM pg_settings
WHERE name LIKE 'giveway.%' AND name NOT LIKE '%processes' AND name NOT LIKE '%dir' ORDER BY name;
DROP ROLE regress_giveway;
DROP EXTENSION giveway;
