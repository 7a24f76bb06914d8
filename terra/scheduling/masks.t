local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local sequence = require("terra.scheduling.sequence")

local Sequence = sequence.Sequence

return function(Scheduler)
  terra Scheduler:num_missing_masks() : int32
    var count = 0
    for i = 0, self.launched.size do
      var segment = &self.launched.data[i]
      if segment.awaits_mask and segment.sequence ~= nil and segment.sequence:lacks_a_mask() then
        count = count + 1
      end
    end
    return count
  end

  terra Scheduler:can_others_go_on() : bool
    if self.waiting.size > 0 and self.free_rows.size > 0 then
      return true
    end
    for i = 0, self.running.size do
      if not self.running.data[i]:lacks_a_mask() then
        return true
      end
    end
    return false
  end

  terra Scheduler:lets_drafts_wait(item : &Sequence) : bool
    return item:has_drafts_behind_its_token() and 2 * self.running.size <= self.step.shape:most_decode_rows()
  end

  terra Scheduler:take_row_back(item : &Sequence)
    self:forget(item)
    item.num_in_flight = 0
    item.num_computed = item.num_computed - 1
    while item.pages.size > self:pages_for(item.num_computed) do
      self.pool:release(item.pages:pop())
    end
  end

  terra Scheduler:num_missing_masks_behind_drafts() : int32
    var count = 0
    for i = 0, self.launched.size do
      var segment = &self.launched.data[i]
      if segment:awaits_mask_behind_draft() and not segment.sequence:has_mask_behind_draft() then
        count = count + 1
      end
    end
    return count
  end

  terra Scheduler:drop_draft(segment : &lists.Segment)
    var item = segment.sequence
    self.step:leave_uncounted(segment.sample_row + 1)
    segment.num_tokens = segment.num_tokens - 1
    item.num_in_flight = item.num_in_flight - 1
    item.num_computed = item.num_computed - 1
    item.layer_estimate:learn(item:num_outputs() + 1, 1, 0)
    self.counters.num_dropped_rows = self.counters.num_dropped_rows + 1
  end

  terra Scheduler:write_mask_behind_draft(segment : &lists.Segment)
    if segment.sequence:has_mask_behind_draft() then
      self.step:restrict(segment.sample_row + 1, segment.sequence:mask_of_row(1))
    else
      self:drop_draft(segment)
    end
  end

  terra Scheduler:write_awaited_mask(segment : &lists.Segment, is_overdue : bool)
    var item = segment.sequence
    if segment:awaits_mask_behind_draft() then
      self:write_mask_behind_draft(segment)
    end
    if item == nil then
      for row = segment.sample_row, segment.sample_row + 1 + segment:num_drafts() do
        self.step:leave_uncounted(row)
      end
    elseif item:lacks_a_mask() then
      self.step:leave_uncounted(segment.sample_row)
      item.masks.is_late = is_overdue or item.masks.is_late
      self.counters.num_late_masks = self.counters.num_late_masks + 1
      self:take_row_back(item)
    else
      self.step:restrict(segment.sample_row, item:next_mask())
    end
  end

  terra Scheduler:write_awaited_masks(is_overdue : bool)
    check.invariant(self.is_unsampled, "masks were written for a forward pass that does not expect any")
    for i = 0, self.launched.size do
      if self.launched.data[i].awaits_mask then
        self:write_awaited_mask(&self.launched.data[i], is_overdue)
      end
    end
    self.is_unsampled = false
  end
end
