local abi = require("terra.base.abi")
local C = abi.C

local threads = {}

terra threads.now_ns() : int64
  var time : C.timespec
  C.clock_gettime(C.CLOCK_MONOTONIC, &time)
  return [int64](time.tv_sec) * 1000000000LL + time.tv_nsec
end

terra threads.init_condition(condition : &C.pthread_cond_t)
  var attributes : C.pthread_condattr_t
  C.pthread_condattr_init(&attributes)
  C.pthread_condattr_setclock(&attributes, C.CLOCK_MONOTONIC)
  C.pthread_cond_init(condition, &attributes)
  C.pthread_condattr_destroy(&attributes)
end

terra threads.wait_until(condition : &C.pthread_cond_t, mutex : &C.pthread_mutex_t, time_ns : int64) : bool
  if time_ns == 0 then
    C.pthread_cond_wait(condition, mutex)
    return true
  end
  var time : C.timespec
  time.tv_sec = time_ns / 1000000000LL
  time.tv_nsec = time_ns % 1000000000LL
  return C.pthread_cond_timedwait(condition, mutex, &time) ~= C.ETIMEDOUT
end

local struct Turnstile {
  mutex : C.pthread_mutex_t
  moved : C.pthread_cond_t
  next_ticket : uint64
  serving : uint64
}

terra Turnstile:init()
  C.pthread_mutex_init(&self.mutex, nil)
  C.pthread_cond_init(&self.moved, nil)
  self.next_ticket = 0
  self.serving = 0
end

terra Turnstile:free()
  C.pthread_cond_destroy(&self.moved)
  C.pthread_mutex_destroy(&self.mutex)
end

terra Turnstile:enter()
  C.pthread_mutex_lock(&self.mutex)
  var ticket = self.next_ticket
  self.next_ticket = ticket + 1
  while self.serving ~= ticket do
    C.pthread_cond_wait(&self.moved, &self.mutex)
  end
  C.pthread_mutex_unlock(&self.mutex)
end

terra Turnstile:leave()
  C.pthread_mutex_lock(&self.mutex)
  self.serving = self.serving + 1
  C.pthread_cond_broadcast(&self.moved)
  C.pthread_mutex_unlock(&self.mutex)
end

threads.Turnstile = Turnstile
return threads
