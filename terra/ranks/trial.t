local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local numbers = require("terra.base.numbers")
local status = require("terra.base.status")
local C = abi.C

local greater = numbers.greater(int32)

local stride_of_tokens = 7919

local struct Trial {
  plan : batch.StepPlan
  memory : &int8
  tokens : &int32
  num_tokens : int32
  page_size : int32
  num_pages : int32
  draws_drafts : bool
}

terra Trial:free()
  C.free(self.memory)
  C.free(self.tokens)
end

terra Trial:fill_tokens()
  for i = 0, self.num_tokens do
    self.tokens[i] = [int32](([int64](i) * stride_of_tokens + 1) % self.plan.shape.vocab_size)
  end
end

terra Trial:init(shape : &batch.StepShape, page_size : int32, num_pages : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(Trial))
  self.page_size = page_size
  self.num_pages = num_pages
  self.num_tokens = shape.max_pages_per_sequence * page_size + shape.max_decode_rows
  self.memory = [&int8](C.calloc(1, shape:host_bytes()))
  self.tokens = [&int32](C.calloc(self.num_tokens, sizeof(int32)))
  if self.memory == nil or self.tokens == nil then
    self:free()
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to plan a forward pass")
  end
  self.plan:bind(shape, self.memory)
  self:fill_tokens()
  return C.GLM_OK
end

terra Trial:begin()
  self.plan:begin()
end

terra Trial:finish()
  self.plan:write_draft_rows()
end

terra Trial:table_row() : int32
  return self.plan.num_segments % self.plan.shape.max_sequences
end

terra Trial:take_pages(num_tokens : int32)
  var row = self:table_row()
  var pages = self.plan:page_table_of(row)
  var count : int64 = (num_tokens + self.page_size - 1) / self.page_size
  for i = 0, count do
    pages[i] = [int32]((row * count + i) % self.num_pages)
  end
  self.plan.page_table_row_end = greater(self.plan.page_table_row_end, row + 1)
end

terra Trial:sample_last_row(position : int32)
  var sampling = batch.plain_sampling(-1)
  var table_row = terralib.select(self.plan.shape:drafts_with_layer(), self.plan.inputs.table_row[self.plan.num_segments - 1], -1)
  var row = self.plan:add_sample_row(self.plan.num_tokens - 1, &sampling, position, table_row, false)
  if self.draws_drafts and self.plan.num_draft_rows < self.plan.shape.max_draft_rows then
    self.plan:add_draft_row(row)
  end
end

terra Trial:add_decode_rows(num_rows : int32, position : int32)
  for row = 0, num_rows do
    self:take_pages(position + 1)
    self.plan:add_decode_segment(self:table_row(), position, self.tokens + row, self.page_size)
    self:sample_last_row(position + 1)
  end
end

terra Trial:add_prompt(position : int32, num_tokens : int32)
  self:take_pages(position + num_tokens)
  self.plan:add_segment(self:table_row(), position, num_tokens, self.tokens, self.page_size)
  if self.plan.num_sample_rows == 0 then
    self:sample_last_row(position + num_tokens)
  end
end

return { Trial = Trial }
