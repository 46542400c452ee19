-- The load: POST /ask, one question after the other.
--
--   wrk ... -s ask.lua http://HOST/ask -- requests.jsonl
--
-- The file has a body a line. Each thread begins elsewhere in it.

local begun = 0
local bodies = {}
local at = 0

function setup(thread)
	thread:set("number", begun)
	begun = begun + 1
end

function init(args)
	for line in io.lines(args[1]) do
		bodies[#bodies + 1] = line
	end
	at = number * 37
	wrk.method = "POST"
	wrk.headers["Content-Type"] = "application/json"
end

function request()
	at = at % #bodies + 1
	return wrk.format(nil, nil, nil, bodies[at])
end
