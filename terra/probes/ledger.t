local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local check = require("terra.base.check")
local status = require("terra.base.status")
local C = abi.C

local StepPlan = batch.StepPlan

local num_flights = 2

local struct LedgerRanks {
  is_usable : bool
  num_pages : int32
  page_size : int32
  has_one_attention : bool
  shape : batch.StepShape
  cells : &int32
  layer_cells : &int32
  layer_percent : int32
  num_draft_rows : int32
  num_drafting_steps : int32
  page_table : &int32
  counts : &uint32
  states : &C.glm_sequence_state
  step_calls : int32
  failing_step : int32
  failing_transfer : int32
  transfer_calls : int32
  breaks_for_good : bool
  results : batch.StepOutputs
  flights : batch.StepOutputs[num_flights]
  hashes : &uint64
  num_sampled : int32
  num_awaited_forwards : int32
  decode_ns : int64
  step_ns : int64
  row_ns : int64
  flight_ns : int64[num_flights]
  device_ns : int64
  memory : &int8
  num_launched : int32
  num_landed : int32
}

local prefill_mark = 16777216

terra LedgerRanks:init(shape : batch.StepShape, num_pages : int32, page_size : int32, has_one_attention : bool) : bool
  C.memset(self, 0, sizeof(LedgerRanks))
  self.is_usable = true
  self.shape = shape
  self.num_pages = num_pages
  self.page_size = page_size
  self.has_one_attention = has_one_attention
  self.failing_step = -1
  self.failing_transfer = -1
  self.cells = [&int32](C.calloc([int64](num_pages) * page_size + 1, sizeof(int32)))
  self.layer_cells = [&int32](C.calloc([int64](num_pages) * page_size + 1, sizeof(int32)))
  self.page_table = [&int32](C.calloc([int64](shape.max_sequences) * shape.max_pages_per_sequence + 1, sizeof(int32)))
  self.counts = [&uint32](C.calloc([int64](shape.max_sequences) * shape.vocab_size + 1, sizeof(uint32)))
  self.states = [&C.glm_sequence_state](C.calloc(shape.max_sequences + 1, sizeof(C.glm_sequence_state)))
  var bytes = batch.StepOutputs.bytes_for(&shape)
  self.memory = [&int8](C.calloc(num_flights + 1, bytes))
  self.hashes = [&uint64](C.calloc(shape.max_logit_rows + 1, sizeof(uint64)))
  self.results:bind(&shape, self.memory)
  for i = 0, num_flights do
    self.flights[i]:bind(&shape, self.memory + (i + 1) * bytes)
  end
  return self.cells ~= nil and self.layer_cells ~= nil and self.page_table ~= nil and self.counts ~= nil and self.states ~= nil and self.hashes ~= nil and self.memory ~= nil
end

terra LedgerRanks:free()
  C.free(self.cells)
  C.free(self.layer_cells)
  C.free(self.page_table)
  C.free(self.counts)
  C.free(self.states)
  C.free(self.hashes)
  C.free(self.memory)
end

terra LedgerRanks:upload_table(plan : &StepPlan)
  var stride : int64 = self.shape.max_pages_per_sequence
  for i = plan.page_table_row_begin * stride, plan.page_table_row_end * stride do
    self.page_table[i] = plan.inputs.page_table[i]
  end
end

terra LedgerRanks:store(plan : &StepPlan)
  for row = 0, plan.num_tokens do
    var cell = plan.inputs.token_ids[row] + 1
    if row >= plan.num_decode_tokens and not self.has_one_attention then
      cell = cell + prefill_mark
    end
    self.cells[plan.inputs.slots[row]] = cell
  end
end

local terra mix(hash : uint64, value : uint64) : uint64
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL
  return hash ^ (hash >> 29)
end

terra LedgerRanks:segment_of(plan : &StepPlan, row : int32) : int32
  var segment = 0
  while plan.inputs.query_begin[segment + 1] <= row do
    segment = segment + 1
  end
  return segment
end

terra LedgerRanks:context_hash(plan : &StepPlan, row : int32) : uint64
  var segment = self:segment_of(plan, row)
  var after = plan.inputs.query_begin[segment + 1] - 1 - row
  var length = plan.inputs.context_length[segment] - after
  var pages = self.page_table + [int64](plan.inputs.table_row[segment]) * self.shape.max_pages_per_sequence
  var hash : uint64 = 0
  for position = 0, length do
    var slot = pages[position / self.page_size] * self.page_size + position % self.page_size
    hash = mix(hash, self.cells[slot])
  end
  return hash
end

terra LedgerRanks:counts_of(plan : &StepPlan, index : int32) : &uint32
  return self.counts + [int64](plan.inputs.count_row[index]) * self.shape.vocab_size
end

terra LedgerRanks:count_drafts(plan : &StepPlan, index : int32, change : int32)
  var counts = self:counts_of(plan, index)
  for back = 0, plan.inputs.row_offset[index] do
    var count = &counts[plan.inputs.token_ids[plan.inputs.logit_rows[index] - back]]
    @count = @count + change
  end
end

terra LedgerRanks:count_hash(plan : &StepPlan, index : int32, hash : uint64) : uint64
  var counts = self:counts_of(plan, index)
  self:count_drafts(plan, index, 1)
  for token = 0, self.shape.vocab_size do
    hash = mix(hash, counts[token])
  end
  self:count_drafts(plan, index, -1)
  return hash
end

terra LedgerRanks:accept(plan : &StepPlan)
  var is_accepted : bool
  for index = 0, plan.num_sample_rows do
    var offset, state_row = plan.inputs.row_offset[index], plan.inputs.state_row[index]
    var token, draft = self.results.token_ids[index], plan.inputs.token_ids[plan.inputs.logit_rows[index]]
    if offset == 0 then
      is_accepted = true
    else
      is_accepted = is_accepted and draft == self.results.token_ids[index - 1]
    end
    if is_accepted and state_row >= 0 then
      self.states[state_row] = C.glm_sequence_state { plan.inputs.position[index] + 1, token, offset, -1 }
    end
    if is_accepted and plan.inputs.count_row[index] >= 0 and token >= 0 then
      var count = self:counts_of(plan, index) + token
      @count = @count + 1
    end
  end
end

terra LedgerRanks:bias_hash(plan : &StepPlan, index : int32, hash : uint64) : uint64
  for i = plan.inputs.bias_begin[index], plan.inputs.bias_end[index] do
    hash = mix(hash, plan.inputs.bias_tokens[i])
    hash = mix(hash, [int64](plan.inputs.bias_values[i]))
  end
  return hash
end

terra LedgerRanks:allowed(plan : &StepPlan, index : int32, wanted : int32) : int32
  var row = plan.inputs.mask_row[index]
  if row < 0 then
    return wanted
  end
  var mask = plan.inputs.masks + row * self.shape:mask_words()
  for i = 0, self.shape.vocab_size - 1 do
    var token = (wanted + i) % (self.shape.vocab_size - 1)
    if (mask[token / 32] >> (token % 32)) % 2 == 1 then
      return token
    end
  end
  return -1
end

terra LedgerRanks:poisoned(plan : &StepPlan, row : int32) : bool
  return plan.inputs.token_ids[row] == self.shape.vocab_size - 1
end

terra LedgerRanks:drawn_hash(plan : &StepPlan, index : int32, hash : uint64) : uint64
  hash = self:bias_hash(plan, index, hash)
  if plan.inputs.count_row[index] >= 0 then
    hash = self:count_hash(plan, index, hash)
  end
  if plan.inputs.temperature[index] > 0.0f then
    hash = mix(mix(hash, plan.inputs.seed[index]), plan.inputs.position[index])
  end
  return hash
end

terra LedgerRanks:sample_row(plan : &StepPlan, index : int32)
  var row = plan.inputs.logit_rows[index]
  var hash = self:drawn_hash(plan, index, self.hashes[index])
  var token = self:allowed(plan, index, [int32](hash % [uint64](self.shape.vocab_size - 1)))
  self.results.logprob[index] = -1.0f
  if plan.inputs.forced_token[index] >= 0 then
    token = plan.inputs.forced_token[index]
    self.results.logprob[index] = -[float](hash % 1000)
  end
  self.results.token_ids[index] = token
  self.results.is_finite[index] = 1
  if self:poisoned(plan, row) then
    self.results.is_finite[index] = 0
    self.results.token_ids[index] = -1
  end
  for i = 0, plan.inputs.num_logprobs[index] do
    self.results.top_ids[index * C.GLM_MAX_LOGPROBS + i] = (token + i) % self.shape.vocab_size
    self.results.top_logprobs[index * C.GLM_MAX_LOGPROBS + i] = -1.0f - i
  end
end

terra LedgerRanks:write_logits(plan : &StepPlan, index : int32)
  var row = plan.inputs.logit_rows[index]
  var hash = self:context_hash(plan, row)
  var logits = plan.logits + [int64](index) * self.shape.vocab_size
  for token = 0, self.shape.vocab_size do
    var value = [float](mix(hash, token) % 1000)
    if self:poisoned(plan, row) then
      value = 0.0f / 0.0f
    end
    logits[token] = value
  end
end

terra LedgerRanks:begin_row(plan : &StepPlan, row : int32)
  var inputs, offset = &plan.inputs, plan.inputs.row_offset[row]
  var state = self.states[inputs.table_row[row]]
  var position, token = state.length - 1 + offset, state.last_id
  if offset > 0 then
    var first : int64 = row * self.shape.rows_per_sequence
    token = inputs.continuation[first + state.num_accepted]
    token = terralib.select(token < 0, state.draft_id, token)
  end
  check.invariant(position < inputs.position_limit[row], "a row lies past the limit of its positions")
  var pages = self.page_table + [int64](inputs.table_row[row]) * self.shape.max_pages_per_sequence
  inputs.token_ids[row] = terralib.select(token < 0, 0, token)
  inputs.positions[row] = position
  inputs.slots[row] = pages[position / self.page_size] * self.page_size + position % self.page_size
  inputs.context_length[row] = position + 1
  inputs.position[row] = position + 1
end

terra LedgerRanks:begin_step(plan : &StepPlan)
  for row = 0, plan.num_decode_tokens do
    if plan.inputs.source_rows[row] >= 0 then
      self:begin_row(plan, row)
    end
  end
end

terra LedgerRanks:slot_of(table_row : int32, position : int32) : int32
  var pages = self.page_table + [int64](table_row) * self.shape.max_pages_per_sequence
  return pages[position / self.page_size] * self.page_size + position % self.page_size
end

terra LedgerRanks:store_layer(plan : &StepPlan)
  for row = 0, plan.num_tokens do
    var next = plan.inputs.next_ids[row]
    if next < 0 then
      next = self.results.token_ids[-1 - next]
    end
    self.layer_cells[plan.inputs.slots[row]] = terralib.select(next < 0, 0, next)
  end
end

terra LedgerRanks:knows_context(table_row : int32, position : int32) : bool
  for i = 0, position do
    var is_shared = i % self.page_size == self.page_size - 1
    var next = self.cells[self:slot_of(table_row, i + 1)] - 1
    if not is_shared and self.layer_cells[self:slot_of(table_row, i)] ~= next % prefill_mark then
      return false
    end
  end
  return self.layer_cells[self:slot_of(table_row, position)] == self.states[table_row].last_id
end

terra LedgerRanks:draft_behind(plan : &StepPlan, index : int32, first : int32) : int32
  var table_row = plan.inputs.state_row[first]
  var state = self.states[table_row]
  var last = first + state.num_accepted
  plan.inputs.position[index] = state.length
  var chance = mix(mix(0, self.num_sampled), index)
  var right = [int32](self:drawn_hash(plan, index, mix(self.hashes[last], state.last_id + 1)) % [uint64](self.shape.vocab_size - 1))
  if not self:knows_context(table_row, plan.inputs.positions[plan.inputs.logit_rows[last]]) or chance % 100 >= [uint64](self.layer_percent) then
    return terralib.select(chance % 7 == 0, -1, (right + 1) % (self.shape.vocab_size - 1))
  end
  return right
end

terra LedgerRanks:draft(plan : &StepPlan)
  for i = 0, plan.num_draft_rows do
    var first = plan.inputs.draft_rows[i]
    self.results.draft_ids[i] = -1
    if plan.inputs.state_row[first] >= 0 then
      self.results.draft_ids[i] = self:draft_behind(plan, plan:first_draft_row() + i, first)
      self.states[plan.inputs.state_row[first]].draft_id = self.results.draft_ids[i]
    end
  end
  self.num_draft_rows = self.num_draft_rows + plan.num_draft_rows
  self.num_drafting_steps = self.num_drafting_steps + terralib.select(plan.num_draft_rows > 0, 1, 0)
end

terra LedgerRanks:sample(plan : &StepPlan, message : &C.glm_message) : int32
  for index = 0, plan.num_sample_rows do
    self:sample_row(plan, index)
  end
  self:accept(plan)
  if plan.shape:drafts_with_layer() then
    self:store_layer(plan)
    self:draft(plan)
  end
  C.memcpy(self.flights[(self.num_launched - 1) % num_flights].data, self.results.data, self.results.bytes)
  self.num_sampled = self.num_sampled + 1
  return C.GLM_OK
end

terra LedgerRanks:launch(plan : &StepPlan, message : &C.glm_message) : int32
  self.step_calls = self.step_calls + 1
  if self.step_calls - 1 == self.failing_step then
    self.is_usable = not self.breaks_for_good
    return status.fail(message, C.GLM_DEVICE_ERROR, "linear failed in layer 3 on rank 1: step %d was set to fail", self.failing_step)
  end
  self:upload_table(plan)
  self:begin_step(plan)
  self:store(plan)
  if plan.logits ~= nil then
    for index = 0, plan.num_logit_rows do
      self:write_logits(plan, index)
    end
  end
  for index = 0, plan.num_sample_rows do
    self.hashes[index] = self:context_hash(plan, plan.inputs.logit_rows[index])
  end
  self.flight_ns[self.num_launched % num_flights] = self.decode_ns + self.step_ns + self.row_ns * plan.num_tokens
  self.num_launched = self.num_launched + 1
  if plan:awaits_masks() then
    return C.GLM_OK
  end
  return self:sample(plan, message)
end

terra LedgerRanks:await_forward(message : &C.glm_message) : int32
  self.num_awaited_forwards = self.num_awaited_forwards + 1
  return C.GLM_OK
end

terra LedgerRanks:land(outputs : &batch.StepOutputs, message : &C.glm_message) : int32
  C.memcpy(outputs.data, self.flights[self.num_landed % num_flights].data, outputs.bytes)
  self.device_ns = self.flight_ns[self.num_landed % num_flights]
  self.num_landed = self.num_landed + 1
  return C.GLM_OK
end

terra LedgerRanks:step(plan : &StepPlan, message : &C.glm_message) : int32
  status.try(self:launch(plan, message))
  return self:land(&plan.outputs, message)
end

terra LedgerRanks:last_device_ns() : int64
  return self.device_ns
end

terra LedgerRanks:last_is_graph() : int32
  return 0
end

terra LedgerRanks:page_bytes() : int64
  return self.page_size * sizeof(int32)
end

terra LedgerRanks:page_host_bytes() : int64
  return 2 * self:page_bytes()
end

terra LedgerRanks:page(page : int32) : &int32
  return self.cells + [int64](page) * self.page_size
end

terra LedgerRanks:layer_page(page : int32) : &int32
  return self.layer_cells + [int64](page) * self.page_size
end

terra LedgerRanks:begin_transfer(name : rawstring, message : &C.glm_message) : int32
  self.transfer_calls = self.transfer_calls + 1
  status.fail_if(message, self.transfer_calls - 1 == self.failing_transfer, C.GLM_DEVICE_ERROR, "%s failed on rank 0: transfer %d was set to fail", name, self.failing_transfer)
  return C.GLM_OK
end

terra LedgerRanks:copy_pages(num_pages : int32, source : &int32, destination : &int32, message : &C.glm_message) : int32
  status.try(self:begin_transfer("copy_pages", message))
  for i = 0, num_pages do
    C.memcpy(self:page(destination[i]), self:page(source[i]), self:page_bytes())
    C.memset(self:page(source[i]), 0xFF, self:page_bytes())
    C.memcpy(self:layer_page(destination[i]), self:layer_page(source[i]), self:page_bytes())
    C.memset(self:layer_page(source[i]), 0xFF, self:page_bytes())
  end
  return C.GLM_OK
end

terra LedgerRanks:save_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
  status.try(self:begin_transfer("save_pages", message))
  for i = 0, num_pages do
    var target = [&int32](host) + 2 * i * self.page_size
    C.memcpy(target, self:page(pages[i]), self:page_bytes())
    C.memcpy(target + self.page_size, self:layer_page(pages[i]), self:page_bytes())
  end
  return C.GLM_OK
end

terra LedgerRanks:restore_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
  status.try(self:begin_transfer("restore_pages", message))
  for i = 0, num_pages do
    var source = [&int32](host) + 2 * i * self.page_size
    C.memcpy(self:page(pages[i]), source, self:page_bytes())
    C.memcpy(self:layer_page(pages[i]), source + self.page_size, self:page_bytes())
  end
  return C.GLM_OK
end

terra LedgerRanks:count_tokens(row : int32, reset : bool, from_prompt : bool, num_tokens : int32, tokens : &int32, message : &C.glm_message) : int32
  var counts = self.counts + [int64](row) * self.shape.vocab_size
  if reset then
    C.memset(counts, 0, self.shape.vocab_size * sizeof(uint32))
  end
  for i = 0, num_tokens do
    var count = &counts[tokens[i]]
    if from_prompt then
      @count = @count or [uint32](C.GLM_TOKEN_IN_PROMPT)
    else
      @count = @count + 1
    end
  end
  return C.GLM_OK
end

return { LedgerRanks = LedgerRanks }
