local abi = require("terra.base.abi")
local acceptance = require("terra.ranks.acceptance")
local buffers = require("terra.plan.buffers")
local numbers = require("terra.base.numbers")
local plan = require("terra.plan.plan")
local graphs = require("terra.ranks.graphs")
local place = require("terra.model.place")
local random = require("terra.model.random")
local rank = require("terra.ranks.rank")
local ranks = require("terra.ranks.ranks")
local status = require("terra.base.status")
local weights = require("terra.model.layout")
local C = abi.C

local load = {}

local Rank, call = rank.Rank, rank.call
local RankGroup = ranks.RankGroup
local num_stagings = buffers.num_stagings
local greater = numbers.greater(int64)

local struct Loading {
  plan : &plan.Plan
  group : &C.glm_group
  num_threads : int32
}

local terra threads_per_rank(given : int32, world_size : int32) : int32
  var total = [int64](given)
  if total == 0 then
    total = C.sysconf(C._SC_NPROCESSORS_ONLN)
  end
  return [int32](greater(total / world_size, 1))
end

local terra open_device(self : &Rank, loading : &Loading, message : &C.glm_message) : int32
  var options : C.glm_device_options
  options.struct_size = sizeof(C.glm_device_options)
  options.rank = self.index
  options.world_size = self.world_size
  options.num_threads = loading.num_threads
  options.group = loading.group
  return self.backend.device_open(&options, &self.device, message)
end

local terra allocate(self : &Rank, kind : int32, bytes : int64, memory : &&opaque, message : &C.glm_message) : int32
  call(self, message, "device memory allocation", "allocate", kind, bytes, memory)
  return C.GLM_OK
end

local terra bind_buffers(self : &Rank, loading : &Loading, message : &C.glm_message) : int32
  var planned = loading.plan
  var shape = planned:buffer_shape()
  var bytes = buffers.bytes(&shape)
  status.try(allocate(self, C.GLM_MEMORY_SHARED, bytes, &self.buffer_memory, message))
  self.buffers:bind(&shape, [&int8](self.buffer_memory))
  call(self, message, "set_workspace", "set_workspace", &planned.workspace, self.buffers.workspace, planned.workspace_bytes)
  if self.world_size > 1 then
    call(self, message, "buffer exchange between ranks", "group_bind", self.buffer_memory, bytes)
  end
  if self.index == 0 then
    call(self, message, "pinned host memory allocation", "host_allocate", planned.host_bytes, &self.host_memory)
    C.memset(self.host_memory, 0, planned.host_bytes)
    self.buffers:bind_host(&shape, [&int8](self.host_memory))
  end
  self.cache = planned:cache(planned.num_pages)
  return allocate(self, C.GLM_MEMORY_OWN, planned.page_bytes * planned.num_pages, &self.cache.data, message)
end

local terra create_events(self : &Rank, message : &C.glm_message) : int32
  for i = 0, num_stagings do
    escape
      for _, name in ipairs(rank.step_events) do
        emit quote
          call(self, message, "creation of events", "event_create", &self.[name][i])
        end
      end
    end
  end
  return C.GLM_OK
end

local terra fill_rope_table(self : &Rank, planned : &plan.Plan, message : &C.glm_message) : int32
  var args : C.glm_rope_table_args
  args.theta = self.config.rope_theta
  args.rotary_dim = self.config.rotary_dim
  args.num_positions = planned.options.max_seq
  args.cosine = self.buffers.cosine
  args.sine = self.buffers.sine
  call(self, message, "rope_table", "rope_table", &args)
  return C.GLM_OK
end

local terra upload_rows(self : &Rank, rows : &int32, count : int64, message : &C.glm_message) : int32
  status.fail_if(message, rows == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to number %lld draft rows", count)
  for i = 0, count do
    rows[i] = i
  end
  call(self, message, "draft row upload", "upload", self.buffers.draft_query_begin, rows, count * sizeof(int32))
  call(self, message, "draft row upload", "synchronise")
  return C.GLM_OK
end

local terra number_draft_rows(self : &Rank, planned : &plan.Plan, message : &C.glm_message) : int32
  if not planned.shape:drafts_with_layer() then
    return C.GLM_OK
  end
  var count : int64 = planned.shape.max_draft_rows + 1
  var rows = [&int32](C.malloc(count * sizeof(int32)))
  var code = upload_rows(self, rows, count, message)
  C.free(rows)
  return code
end

local terra place_weights(self : &Rank, planned : &plan.Plan, message : &C.glm_message) : int32
  var layout = planned:layout(self.index)
  var bytes : int64 = 0
  status.try(allocate(self, C.GLM_MEMORY_OWN, planned.weight_bytes, &self.weight_memory, message))
  self.weight_bytes = planned.weight_bytes
  status.try(weights.assign(&layout, [&int8](self.weight_memory), &self.weights, &bytes, message))
  status.fail_if(
    message, bytes ~= planned.weight_bytes, C.GLM_INTERNAL_ERROR, "rank %d has %lld bytes of weights, but the plan expects %lld on each rank", self.index, bytes, planned.weight_bytes
  )
  var progress = place.Progress { report = nil, context = nil, bytes_done = 0, bytes_total = bytes }
  if self.index == 0 then
    progress.report = planned.options.progress
    progress.context = planned.options.progress_context
  end
  if planned.options.synthetic ~= 0 then
    status.try(random.weights(&layout, &self.weights, self.device, &progress, message))
  else
    status.try(place.weights(&layout, &self.weights, &planned.model.modules, &planned.model.checkpoint, self.device, &progress, message))
  end
  self.cache.key_scale = self.weights.key_scale
  self.cache.value_scale = self.weights.value_scale
  call(self, message, "weight placement", "synchronise")
  status.try(planned.model.checkpoint:expect_whole(message))
  progress:add(bytes - progress.bytes_done)
  return C.GLM_OK
end

local terra table_of(self : &Rank, data : &opaque, num_rows : int32, width : int32) : C.glm_matrix
  var table : C.glm_matrix
  C.memset(&table, 0, sizeof(C.glm_matrix))
  table.data = data
  table.dtype = self.activation_dtype
  table.role = C.GLM_MATRIX_TABLE
  table.rows = num_rows
  table.columns = width
  return table
end

local terra describe_rows(self : &Rank, num_rows : int32)
  var query_width = self.weights.num_local_heads * self.config.head_dim
  self.residual_rows = table_of(self, self.buffers.residual, num_rows, self.config.hidden_size)
  self.gathered_rows = table_of(self, self.buffers.delta, num_rows, self.config.hidden_size)
  self.query_rows = table_of(self, self.buffers.query, num_rows, query_width)
  self.attended_rows = table_of(self, self.buffers.attended, num_rows, query_width)
end

local terra load_rank(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var loading = [&Loading](context)
  self.config = &loading.plan.model.config
  self.activation_dtype = loading.plan.activation_dtype
  self.fewest_scattered_rows = loading.plan.fewest_scattered_rows
  self.acceptance_rate = acceptance.rate(&loading.plan.options)
  self.checks_operations = loading.plan.options.check_operations ~= 0
  status.try(open_device(self, loading, message))
  status.try(create_events(self, message))
  status.try(bind_buffers(self, loading, message))
  status.try(fill_rope_table(self, loading.plan, message))
  status.try(number_draft_rows(self, loading.plan, message))
  status.try(place_weights(self, loading.plan, message))
  describe_rows(self, loading.plan.options.max_step_tokens)
  return C.GLM_OK
end

terra load.ranks(group : &RankGroup, planned : &plan.Plan, message : &C.glm_message) : int32
  var loading = Loading {
    plan = planned,
    group = group.group,
    num_threads = threads_per_rank(planned.options.num_threads, group.world_size),
  }
  return group:run(load_rank, &loading, message)
end

local terra free_events(self : &Rank)
  for i = 0, num_stagings do
    escape
      for _, name in ipairs(rank.step_events) do
        emit quote
          if self.[name][i] ~= nil then
            self.backend.event_free(self.device, self.[name][i])
          end
        end
      end
    end
  end
end

local terra unload_rank(self : &Rank)
  if self.device == nil then
    return
  end
  graphs.free(self)
  self:stop_profile()
  free_events(self)
  self.backend.release(self.device, self.weight_memory)
  self.backend.release(self.device, self.buffer_memory)
  self.backend.release(self.device, self.cache.data)
  self.backend.host_release(self.device, self.host_memory)
  self.backend.device_close(self.device)
  weights.free(&self.weights)
end

terra load.capture(group : &RankGroup, planned : &plan.Plan, message : &C.glm_message) : int32
  if not planned.uses_graphs then
    return C.GLM_OK
  end
  return graphs.capture(group, &planned.shape, message)
end

terra load.free_ranks(group : &RankGroup)
  if group.ranks == nil then
    return
  end
  for i = 0, group.world_size do
    if group.ranks[i].device ~= nil then
      group.backend.synchronise(group.ranks[i].device)
    end
  end
  for i = 0, group.world_size do
    unload_rank(&group.ranks[i])
  end
end

return load
