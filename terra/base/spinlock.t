local abi = require("terra.base.abi")
local C = abi.C

local spinlock = {}

terra spinlock.lock(held : &int32)
  var is_taken = false
  while not is_taken do
    var found = terralib.cmpxchg(held, 0, 1, { success_ordering = "acquire", failure_ordering = "monotonic" })
    is_taken = found._1
    if not is_taken then
      C.sched_yield()
    end
  end
end

terra spinlock.unlock(held : &int32)
  terralib.atomicrmw("xchg", held, 0, { ordering = "release" })
end

return spinlock
