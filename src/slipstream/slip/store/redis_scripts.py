"""What Redis does as one step for a store of slips. Scripts, because each first looks at what is there."""

from __future__ import annotations

_KEEP_LONGER = """
-- A record lives as long as the longest-lived of its facts. A new one has no time yet, which reads as -1.
local function keep(record, ttl_ms)
  if redis.call('PTTL', record) < tonumber(ttl_ms) then redis.call('PEXPIRE', record, ttl_ms) end
end
"""

CLAIM = (
    _KEEP_LONGER
    + """
-- KEYS: record. ARGV: name, value, ttl_ms. Nothing if it is written, else what is kept.
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return redis.call('HGET', KEYS[1], ARGV[1]) end
keep(KEYS[1], ARGV[3])
return false
"""
)

PUT = (
    _KEEP_LONGER
    + """
-- KEYS: record. ARGV: name, value, ttl_ms.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
keep(KEYS[1], ARGV[3])
"""
)

SCHEDULE = """
-- KEYS: times, values. ARGV: id, due_ms, value.
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
"""

UNSCHEDULE = """
-- KEYS: times, values. ARGV: id, due_ms or nothing.
if ARGV[2] ~= '' then
  local due_ms = redis.call('ZSCORE', KEYS[1], ARGV[1])
  if not due_ms or tonumber(due_ms) ~= tonumber(ARGV[2]) then return end
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
"""

DUE = """
-- KEYS: times, values. ARGV: now_ms, limit, put_off_ms. An id and a value in turn.
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])) do
  redis.call('ZADD', KEYS[1], ARGV[3], id)
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', KEYS[2], id)
end
return found
"""

TRACK = """
-- KEYS: history, summaries, open, ended, expiry, and one for each state that a slip may end in.
-- ARGV: digest, packed at_ms, progress, slip, the summary as it was, as it will be, moved_ms, 'ended' or 'open',
-- expires_ms, the key of the state that it has ended in, or nothing. Returns nothing if it is written, or was before;
-- else the summary that another has written meanwhile.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return false end
local known = redis.call('HGET', KEYS[2], ARGV[4])
if known and known ~= ARGV[5] then return known end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. struct.pack('>I4', redis.call('HLEN', KEYS[1])) .. ARGV[3])
redis.call('HSET', KEYS[2], ARGV[4], ARGV[6])
local ended = ARGV[8] == 'ended'
redis.call('ZADD', ended and KEYS[4] or KEYS[3], ARGV[7], ARGV[4])
redis.call('ZREM', ended and KEYS[3] or KEYS[4], ARGV[4])
redis.call('ZADD', KEYS[5], ARGV[9], ARGV[4])
for at = 6, #KEYS do
  if KEYS[at] == ARGV[10] then redis.call('ZADD', KEYS[at], ARGV[7], ARGV[4])
  else redis.call('ZREM', KEYS[at], ARGV[4]) end
end
return false
"""

PURGE = """
-- KEYS: summaries, open, ended, expiry, and those of the end states. ARGV: now_ms, limit, how the keys of histories
-- start. Returns how many slips.
local slips = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, slip in ipairs(slips) do
  redis.call('UNLINK', ARGV[3] .. slip)
  redis.call('HDEL', KEYS[1], slip)
  for at = 2, #KEYS do redis.call('ZREM', KEYS[at], slip) end
end
return #slips
"""
