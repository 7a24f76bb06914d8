local abi = require("terra.base.abi")
local status = require("terra.base.status")
local C = abi.C

local units = { { bytes = 10 ^ 9, name = "GB" }, { bytes = 10 ^ 6, name = "MB" }, { bytes = 10 ^ 3, name = "kB" } }
local size_capacity = 32
local most_gpus = 8
local Size = int8[size_capacity]

local terra write_size(target : &Size, bytes : int64)
  escape
    for _, unit in ipairs(units) do
      emit quote
        if bytes >= [int64]([unit.bytes]) then
          C.snprintf(&(@target)[0], size_capacity, "%.2f %s", [double](bytes) / [double]([unit.bytes]), [unit.name])
          return
        end
      end
    end
  end
  C.snprintf(&(@target)[0], size_capacity, "%lld bytes", bytes)
end

return function(Plan)
  terra Plan:refuse(reason : rawstring, advice : rawstring)
    self.fits = false
    C.snprintf(&self.reason[0], 512, "%s", reason)
    C.snprintf(&self.advice[0], 128, "%s", advice)
  end

  terra Plan:refuse_also(reason : rawstring)
    var length = C.strlen(&self.reason[0])
    C.snprintf(&self.reason[length], 512 - length, "; %s", reason)
  end

  terra Plan:refuse_pool(num_pages : int64)
    var reason : int8[512], advice : int8[128]
    var o = &self.options
    C.snprintf(
      &reason[0], 512, "a KV cache of %lld pages of %d tokens is too small for one request: max_seq %d needs %d pages", num_pages,
      o.page_size, o.max_seq, self.pages_per_request
    )
    C.snprintf(&advice[0], 128, "Use num_pages %d or max_seq %lld.", self.pages_per_request, num_pages * o.page_size)
    self:refuse(&reason[0], &advice[0])
  end

  terra Plan:bytes_with(num_pages : int64) : int64
    return self:fixed_bytes() + num_pages * self.page_bytes * self:num_sharing()
  end

  terra Plan:more_memory() : rawstring
    if self.device.shares_memory then
      return "Use a machine with more memory"
    elseif self.options.world_size < most_gpus then
      return "Use more GPUs or GPUs with more memory"
    end
    return "Use GPUs with more memory"
  end

  terra Plan:advise(target : rawstring, capacity : int64)
    var room, page_size = self:room_for_pages(), self.options.page_size
    var missing = self.needed_bytes - self.memory_available
    if room < 1 then
      var smaller = terralib.select(missing <= self.buffer_bytes * self:num_sharing(), " or a smaller max_step_tokens", "")
      C.snprintf(target, capacity, "%s%s.", self:more_memory(), smaller)
    elseif self.options.num_pages == 0 then
      C.snprintf(target, capacity, "max_seq %lld fits.", room * page_size)
    elseif room >= self.pages_per_request then
      C.snprintf(target, capacity, "num_pages %lld fits.", room)
    else
      C.snprintf(target, capacity, "num_pages %lld with max_seq %lld fits.", room, room * page_size)
    end
  end

  terra Plan:write_request(target : rawstring, capacity : int64, num_pages : int64)
    target[0] = 0
    if self.options.num_pages > 0 then
      C.snprintf(target, capacity, " of %lld pages", num_pages)
    elseif self.wanted.max_seq > 0 then
      C.snprintf(target, capacity, " for one request of max_seq %d", self.options.max_seq)
    end
  end

  terra Plan:refuse_memory(num_pages : int64)
    var weights : Size, buffers : Size, cache : Size, needed : Size, available : Size, missing : Size
    var reason : int8[512], advice : int8[128], request : int8[64]
    var sharing = self:num_sharing()
    self.needed_bytes = self:bytes_with(num_pages)
    write_size(&weights, self.weight_bytes * sharing)
    write_size(&buffers, self.buffer_bytes * sharing)
    write_size(&cache, num_pages * self.page_bytes * sharing)
    write_size(&needed, self.needed_bytes)
    write_size(&available, self.memory_available)
    write_size(&missing, self.needed_bytes - self.memory_available)
    self:write_request(&request[0], 64, num_pages)
    C.snprintf(
      &reason[0], 512, "weights of %s, buffers of %s and a KV cache of %s%s need %s%s, but only %s is available (%s short)", &weights[0],
      &buffers[0], &cache[0], &request[0], &needed[0], terralib.select(self.device.shares_memory, "", " on each GPU"), &available[0], &missing[0]
    )
    self:advise(&advice[0], 128)
    self:refuse(&reason[0], &advice[0])
  end

  terra Plan:refuse_limit(message : &C.glm_message) : int32
    var wanted : Size, excess : Size
    write_size(&wanted, self.memory_available)
    write_size(&excess, self.memory_available - self.device.info.memory_free_bytes)
    return status.fail(
      message, C.GLM_OUT_OF_MEMORY, "memory_limit_bytes is %s, which is %s more than the device's free memory (%s)", &wanted[0], &excess[0], &self.device.info.name[0]
    )
  end
end
