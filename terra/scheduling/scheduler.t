local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local check = require("terra.base.check")
local containers = require("terra.base.containers")
local costs = require("terra.scheduling.costs")
local draft_choice = require("terra.scheduling.draft_choice")
local lists = require("terra.scheduling.lists")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local C = abi.C

local Sequence = sequence.Sequence
local StepPlan = batch.StepPlan

local struct SchedulerOptions {
  engine : C.engine_options
  caches_answers : bool
  plans_ahead : bool
  costs : costs.StepCosts
}

terra SchedulerOptions:max_live() : int32
  return self.engine.max_batch + self.engine.max_queue
end

local struct Counters {
  num_steps : int64
  num_prefill_tokens : int64
  num_decode_tokens : int64
  num_cached_tokens : int64
  num_preemptions : int64
  num_dropped_rows : int64
  num_late_masks : int64
  num_finished : int64
  num_drafts : int64
  num_draft_tokens : int64
  num_accepted_tokens : int64
  num_accepted_at : int64[C.ENGINE_MAX_DRAFT_TOKENS]
}

local struct Scheduler {
  options : SchedulerOptions
  pool : pages.PagePool
  step : &StepPlan
  waiting : lists.SequenceList
  running : lists.SequenceList
  states : lists.SequenceList
  ended : lists.SequenceList
  events : containers.Vector(C.engine_event)
  saves : lists.SequenceList
  restores : lists.SequenceList
  recounts : lists.SequenceList
  free_rows : containers.Vector(int32)
  segments : lists.SegmentList
  launched : lists.SegmentList
  is_unsampled : bool
  pieces : lists.Pieces
  draft_choice : draft_choice.DraftChoice
  draft_price : float
  dirty_begin : int32
  dirty_end : int32
  num_preempted : int32
  num_deadlines : int32
  now_ns : int64
  counters : Counters
}

terra Scheduler:reserve_lists() : bool
  var max_batch, max_live = self.options.engine.max_batch, self.options:max_live()
  for row = 0, max_batch do
    if not self.free_rows:push(max_batch - 1 - row) then
      return false
    end
  end
  return self.waiting:reserve(max_live) and self.running:reserve(max_batch)
    and self.states:reserve(max_batch) and self.ended:reserve(max_live)
    and self.events:reserve(4 * max_live + 2 * self.step.shape.max_logit_rows) and self.saves:reserve(max_live)
    and self.restores:reserve(max_batch) and self.recounts:reserve(max_batch)
    and self.segments:reserve(max_batch) and self.launched:reserve(max_batch)
    and self.draft_choice:reserve(max_batch, self.step.shape:most_decode_rows())
end

terra Scheduler:init(options : &SchedulerOptions, step : &StepPlan, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(Scheduler))
  self.options = @options
  self.step = step
  self.dirty_begin = options.engine.max_batch
  status.refuse(message, options.engine.max_batch > step.shape.max_sequences, "max_batch is %d, but the plan has only %d page table rows", options.engine.max_batch, step.shape.max_sequences)
  status.try(self.pool:init(options.engine.num_pages, options.engine.page_size, message))
  if options.engine.kv_events ~= 0 then
    status.try(self.pool.kv_events:init(options.engine.num_pages, options.engine.page_size, message))
  end
  status.fail_if(message, not self:reserve_lists(), C.GLM_OUT_OF_MEMORY, "not enough host memory for lists of %d sequences", options:max_live())
  return C.GLM_OK
end

local terra free_sequences(list : &lists.SequenceList)
  for i = 0, list.size do
    list.data[i]:free()
    C.free(list.data[i])
  end
  list:free()
end

terra Scheduler:free()
  free_sequences(&self.waiting)
  free_sequences(&self.running)
  free_sequences(&self.states)
  free_sequences(&self.ended)
  self.events:free()
  self.saves:free()
  self.restores:free()
  self.recounts:free()
  self.free_rows:free()
  self.segments:free()
  self.launched:free()
  self.draft_choice:free()
  self.pool:free()
end

terra Scheduler:pages_for(num_tokens : int32) : int32
  return (num_tokens + self.options.engine.page_size - 1) / self.options.engine.page_size
end

terra Scheduler:forget(item : &Sequence)
  var dropped = self.segments:forget(item) + self.launched:forget(item)
  self.counters.num_dropped_rows = self.counters.num_dropped_rows + dropped
end

terra Scheduler:num_live() : int32
  return self.waiting.size + self.running.size
end

terra Scheduler:mark_table_row(row : int32)
  self.dirty_begin = terralib.select(row < self.dirty_begin, row, self.dirty_begin)
  self.dirty_end = terralib.select(row + 1 > self.dirty_end, row + 1, self.dirty_end)
end

terra Scheduler:set_page(item : &Sequence, index : int32, page : int32)
  check.bounds(index, self.step.shape.max_pages_per_sequence)
  self.step:page_table_of(item.table_row)[index] = page
  self:mark_table_row(item.table_row)
end

terra Scheduler:push_page(item : &Sequence, page : int32)
  check.invariant(item.pages.size < item.pages.capacity, "a sequence exceeded the capacity of its page list")
  item.pages:push(page)
  self:set_page(item, item.pages.size - 1, page)
end

terra Scheduler:rename_pages(list : &lists.SequenceList)
  for i = 0, list.size do
    var item = list.data[i]
    for index = 0, item.pages.size do
      var page = item.pages.data[index]
      if self.pool.renamed[page] ~= page then
        item.pages.data[index] = self.pool.renamed[page]
        self:set_page(item, index, item.pages.data[index])
      end
    end
  end
end

terra Scheduler:commit_resize(num_pages : int32, num_moves : int32)
  self.pool:commit_resize(num_pages, num_moves)
  self:rename_pages(&self.running)
  self:rename_pages(&self.states)
end

terra Scheduler:release_pages(item : &Sequence)
  while item.pages.size > 0 do
    self.pool:release(item.pages:pop())
  end
  item.num_registered = 0
end

terra Scheduler:take_row(item : &Sequence)
  item.table_row = self.free_rows:pop()
end

terra Scheduler:give_row(item : &Sequence)
  if item.table_row >= 0 then
    self.free_rows:push(item.table_row)
    item.table_row = -1
  end
end

terra Scheduler:add(item : &Sequence)
  check.invariant(self:num_live() < self.options:max_live(), "there are more live sequences than planned")
  item.state = [sequence.WAITING]
  if item.deadline_ns > 0 then
    self.num_deadlines = self.num_deadlines + 1
  end
  lists.insert_in_order(&self.waiting, item)
end

require("terra.scheduling.endings")(Scheduler)
require("terra.scheduling.masks")(Scheduler)
require("terra.scheduling.pieces")(Scheduler)
require("terra.scheduling.drafts")(Scheduler)
require("terra.scheduling.planning")(Scheduler)
require("terra.scheduling.advance")(Scheduler)

return { Scheduler = Scheduler, SchedulerOptions = SchedulerOptions, Counters = Counters }
