local abi = require("terra.base.abi")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local C = abi.C

local Sequence = sequence.Sequence

return function(Loop)
  terra Loop:find_live(request_id : uint64) : &Sequence
    for i = 0, self.live.size do
      if self.live.data[i].id == request_id then
        return self.live.data[i]
      end
    end
    return nil
  end

  terra Loop:give_mask(mask : &C.engine_mask, message : &C.glm_message) : int32
    var item = self:find_live(mask.request_id)
    status.fail_if(message, item == nil, C.GLM_NOT_FOUND, "request %llu is unknown or has ended", mask.request_id)
    status.try(item:give_mask(mask, threads.now_ns(), message))
    self.has_masks = true
    return C.GLM_OK
  end

  terra Loop:give_masks(masks : &C.engine_mask, num_masks : int32, message : &C.glm_message) : int32
    var worst : int32 = C.GLM_OK
    for i = 0, num_masks do
      var own : C.glm_message
      var code = self:give_mask(&masks[i], &own)
      if code ~= C.GLM_OK and (worst == C.GLM_OK or worst == C.GLM_NOT_FOUND) then
        worst = code
        if message ~= nil then
          @message = own
        end
      end
    end
    return worst
  end

  terra Loop:set_masks(masks : &C.engine_mask, num_masks : int32, message : &C.glm_message) : int32
    status.clear(message)
    status.refuse(message, num_masks < 0 or (num_masks > 0 and masks == nil), "masks is null or num_masks (%d) is negative", num_masks)
    self:lock()
    var code = self:give_masks(masks, num_masks, message)
    C.pthread_cond_signal(&self.work)
    self:unlock()
    return code
  end

  terra Loop:take_masks()
    for i = 0, self.masked.size do
      var item = self.masked.data[i]
      item.masks:take(item:outputs(), item:num_outputs(), self.decode_ns + self.decode_ns / 4)
    end
    self.has_masks = false
  end

  terra Loop:publish_outputs()
    var now = threads.now_ns()
    for i = 0, self.masked.size do
      var item = self.masked.data[i]
      item.masks:publish(item:outputs(), item:num_outputs(), now)
    end
  end

  terra Loop:find_due(now : int64)
    if self.mask_due_ns == 0 and self.scheduler:can_others_go_on() then
      var forward_ns = self.landed_ns + self.decode_ns
      self.mask_due_ns = terralib.select(forward_ns > now, forward_ns, now) + self.decode_ns / 4
    end
  end

  terra Loop:waits_for_masks_behind_drafts(now : int64) : bool
    var forward_ns = self.landed_ns + self.decode_ns
    if now >= forward_ns or self.scheduler:num_missing_masks_behind_drafts() == 0 then
      return false
    end
    self.mask_due_ns = forward_ns
    return true
  end

  terra Loop:waits_for_masks() : bool
    if not self.scheduler.is_unsampled then
      return false
    end
    var now = threads.now_ns()
    self.scheduler:expire(now)
    if self.scheduler:num_missing_masks() == 0 then
      return self:waits_for_masks_behind_drafts(now)
    end
    self:find_due(now)
    self.is_overdue = self.mask_due_ns > 0 and now >= self.mask_due_ns
    return not self.is_overdue
  end

  terra Loop:sample_launched(message : &C.glm_message) : int32
    if self.is_overdue then
      status.try(self.ranks:await_forward(message))
    end
    self:lock()
    self:take_masks()
    self:unlock()
    self.scheduler:write_awaited_masks(self.is_overdue)
    var begin = threads.now_ns()
    status.try(self.ranks:sample(&self.step, message))
    self.launched_step.mask_wait_ns = begin - self.launched_ns
    self.mask_wait_ns = self.mask_wait_ns + self.launched_step.mask_wait_ns
    self.step_ns = self.step_ns + (threads.now_ns() - begin)
    return C.GLM_OK
  end

  terra Loop:sample()
    if not self.scheduler.is_unsampled then
      return
    end
    var message : C.glm_message
    message.text[0] = 0
    var code = self:sample_launched(&message)
    self.is_overdue = false
    self.mask_due_ns = 0
    if code ~= C.GLM_OK then
      self.failure = message
      self.scheduler:fail_landing(code, &message.text[0])
    end
  end
end
