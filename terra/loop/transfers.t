local abi = require("terra.base.abi")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local C = abi.C

local Sequence = sequence.Sequence

return function(Loop)
  terra Loop:save(item : &Sequence, message : &C.glm_message) : int32
    var bytes = self.ranks:page_host_bytes() * item.saved_pages.size
    C.free(item.saved_data)
    item.saved_data = C.malloc(bytes)
    status.fail_if(message, item.saved_data == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory (%lld bytes) to save %lld KV cache pages of a preempted request", bytes, item.saved_pages.size)
    return self.ranks:save_pages(item.saved_pages.size, item.saved_pages.data, item.saved_data, message)
  end

  terra Loop:restore(item : &Sequence, message : &C.glm_message) : int32
    var code = self.ranks:restore_pages(item.saved_pages.size, item.pages.data, item.saved_data, message)
    C.free(item.saved_data)
    item.saved_data = nil
    return code
  end

  terra Loop:recount(item : &Sequence, message : &C.glm_message) : int32
    status.try(self.ranks:count_tokens(item.table_row, true, true, item.prompt_length, item.tokens.data, message))
    if item:num_outputs() == 0 then
      return C.GLM_OK
    end
    return self.ranks:count_tokens(item.table_row, false, false, item:num_outputs(), item.tokens.data + item.prompt_length, message)
  end

  local each = macro(function(self, list, method, num_failed)
    local name = method:asvalue()
    return quote
      for i = 0, list.size do
        var item = list.data[i]
        var message : C.glm_message
        message.text[0] = 0
        if not item:is_ended() then
          var code = self:[name](item, &message)
          if code ~= C.GLM_OK then
            self.scheduler:fail(item, code, &message.text[0])
            self.failure = message
            num_failed = num_failed + 1
          end
        end
      end
    end
  end)

  terra Loop:perform_transfers() : int32
    var num_failed = 0
    each(self, self.scheduler.saves, "save", num_failed)
    each(self, self.scheduler.restores, "restore", num_failed)
    each(self, self.scheduler.recounts, "recount", num_failed)
    self.scheduler:clear_transfers()
    return num_failed
  end
end
