local abi = require("terra.base.abi")
local buffers = require("terra.plan.buffers")
local numbers = require("terra.base.numbers")
local status = require("terra.base.status")
local C = abi.C

local tokens_of_a_request = 512
local most_batch, most_batch_of_futhark = 256, 64
local share_of_shared_memory = 4
local step_tokens, step_tokens_of_futhark = 8192, 512
local least_step_tokens, step_rows_of_a_request = 512, 2
local share_of_step_buffers = 16

local smaller = numbers.smaller(int64)
local greater = numbers.greater(int64)

local terra pages_of(num_tokens : int64, page_size : int64) : int64
  return (num_tokens + page_size - 1) / page_size
end

return function(Plan, max_slots)
  local largest_that_fits = function(choose)
    return terra(self : &Plan, least : int64, most : int64, message : &C.glm_message) : int32
      var low, high = smaller(least, most), most
      var fits : bool
      while low < high do
        var middle = high - (high - low) / 2
        status.try(choose(self, middle, &fits, message))
        if fits then
          low = middle
        else
          high = middle - 1
        end
      end
      return choose(self, low, &fits, message)
    end
  end

  terra Plan:positions() : int64
    return self.model.config.max_position_embeddings
  end

  terra Plan:positions_of_pool() : int64
    if self.wanted.num_pages == 0 then
      return self:positions()
    end
    return smaller(self:positions(), [int64](self.wanted.num_pages) * self.options.page_size)
  end

  terra Plan:default_batch() : int32
    return terralib.select(self.device.is_native_gpu, most_batch, most_batch_of_futhark)
  end

  terra Plan:most_pages_of_pool() : int64
    if self.wanted.num_pages > 0 then
      return self.wanted.num_pages
    end
    var room = self:room_for_pages()
    if self.device.shares_memory and self.wanted.memory_limit_bytes == 0 and self.wanted.memory_limit_percent == 0 then
      var share = room / share_of_shared_memory
      return terralib.select(share < self.pages_per_request, smaller(room, self.pages_per_request), share)
    end
    return room
  end

  terra Plan:measure_buffers(message : &C.glm_message) : int32
    if self.wanted.max_logit_rows == 0 then
      self.options.max_logit_rows = self:max_decode_rows()
    end
    self:shape_step()
    status.try(self:shape_workspace(message))
    var shape = self:buffer_shape()
    self.buffer_bytes = buffers.bytes(&shape)
    self.host_bytes = buffers.host_bytes(&shape)
    return C.GLM_OK
  end

  terra Plan:holds_one_request() : bool
    var has_tables = [int64](self.options.max_batch) * self.pages_per_request <= max_slots
    return has_tables and self.pages_per_request <= smaller(self:room_for_pages(), self:most_pages_of_pool())
  end

  terra Plan:has_room_beside_buffers() : bool
    var room = self:room_for_pages()
    var is_small = self.buffer_bytes <= (self.memory_available - self.weight_bytes) / share_of_step_buffers
    return is_small and self.pages_per_request <= room and self.wanted.num_pages <= room
  end

  terra Plan:choose_step_tokens(message : &C.glm_message) : int32
    var o = &self.options
    if self.wanted.max_step_tokens > 0 then
      return C.GLM_OK
    end
    if self.wanted.max_batch == 0 then
      o.max_batch = self:default_batch()
    end
    var least = greater(least_step_tokens, [int64](step_rows_of_a_request) * o.max_batch)
    var usual = terralib.select(self.device.is_native_gpu, step_tokens, step_tokens_of_futhark)
    o.max_step_tokens = greater(least, usual)
    status.try(self:measure_buffers(message))
    while o.max_step_tokens > least and not self:has_room_beside_buffers() do
      o.max_step_tokens = greater(least, o.max_step_tokens / 2)
      status.try(self:measure_buffers(message))
    end
    return C.GLM_OK
  end

  local terra choose_batch(self : &Plan, max_batch : int64, fits : &bool, message : &C.glm_message) : int32
    var o = &self.options
    o.max_batch = max_batch
    status.try(self:measure_buffers(message))
    var usual = pages_of(smaller(o.max_seq, tokens_of_a_request), o.page_size)
    var longest = pages_of(terralib.select(self.wanted.max_seq == 0, self:positions(), [int64](o.max_seq)), o.page_size)
    @fits = self:holds_one_request() and max_batch * usual <= self:most_pages_of_pool() and max_batch * longest <= max_slots
    return C.GLM_OK
  end

  local terra choose_pages_of_context(self : &Plan, num_pages : int64, fits : &bool, message : &C.glm_message) : int32
    self.options.max_seq = smaller(num_pages * self.options.page_size, self:positions_of_pool())
    status.try(self:measure_buffers(message))
    @fits = self:holds_one_request()
    return C.GLM_OK
  end

  local largest_batch = largest_that_fits(choose_batch)
  local largest_context = largest_that_fits(choose_pages_of_context)

  terra Plan:choose_sizes(message : &C.glm_message) : int32
    var o = &self.options
    var most = self:positions_of_pool()
    var least = smaller(tokens_of_a_request, most)
    if self.wanted.max_seq == 0 then
      o.max_seq = least
    end
    status.try(self:choose_step_tokens(message))
    if self.wanted.max_batch == 0 then
      status.try(largest_batch(self, 1, self:default_batch(), message))
    end
    if self.wanted.max_seq == 0 then
      return largest_context(self, pages_of(least, o.page_size), pages_of(most, o.page_size), message)
    end
    return self:measure_buffers(message)
  end

  terra Plan:max_seq_from() : int32
    if self.wanted.max_seq > 0 then
      return C.ENGINE_FROM_OPTION
    elseif self.options.max_seq == self:positions() then
      return C.ENGINE_FROM_MODEL
    elseif self.options.max_seq == self:positions_of_pool() then
      return C.ENGINE_FROM_NUM_PAGES
    end
    return C.ENGINE_FROM_MEMORY
  end

  terra Plan:max_batch_from() : int32
    if self.wanted.max_batch > 0 then
      return C.ENGINE_FROM_OPTION
    elseif self.options.max_batch == self:default_batch() then
      return C.ENGINE_FROM_DEFAULT
    elseif self.wanted.num_pages > 0 then
      return C.ENGINE_FROM_NUM_PAGES
    end
    return C.ENGINE_FROM_MEMORY
  end
end
