local abi = require("terra.base.abi")
local threads = require("terra.base.threads")
local C = abi.C

local watch = {}

local tick_ns = 250000000LL
local least_busy_ns = tick_ns / 100
local most_idle_ticks = 10
local most_idle_ticks_after_failure = 3
watch.tick_ns = tick_ns
watch.limit_seconds = `[double](most_idle_ticks * tick_ns) / 1e9

watch.limit_seconds_after_failure = `[double](most_idle_ticks_after_failure * tick_ns) / 1e9

local struct Activity {
  num_running : int32
  has_failed : bool
  num_calls : int64
  cpu_ns : int64
}
watch.Activity = Activity

local struct Watch {
  seen : Activity
  num_idle_ticks : int32
}
watch.Watch = Watch

terra watch.cpu_ns(thread : C.pthread_t) : int64
  var clock : C.clockid_t
  var time : C.timespec
  if C.pthread_getcpuclockid(thread, &clock) ~= 0 or C.clock_gettime(clock, &time) ~= 0 then
    return 0
  end
  return [int64](time.tv_sec) * 1000000000LL + time.tv_nsec
end

terra Watch:init(now : Activity)
  self.seen = now
  self.num_idle_ticks = 0
end

terra Watch:finds_idle(now : Activity) : bool
  var is_idle = now.num_running == self.seen.num_running and now.num_calls == self.seen.num_calls
    and now.cpu_ns - self.seen.cpu_ns < least_busy_ns
  self.num_idle_ticks = terralib.select(is_idle, self.num_idle_ticks + 1, 0)
  self.seen = now
  return self.num_idle_ticks >= terralib.select(now.has_failed, most_idle_ticks_after_failure, most_idle_ticks)
end

terra watch.wait_a_tick(condition : &C.pthread_cond_t, mutex : &C.pthread_mutex_t)
  threads.wait_until(condition, mutex, threads.now_ns() + tick_ns)
end

return watch
