local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local costs = require("terra.ranks.costs")
local device = require("terra.ranks.device")
local load = require("terra.ranks.load")
local loop = require("terra.loop.loop")
local model = require("terra.model.model")
local options = require("terra.plan.options")
local plan = require("terra.plan.plan")
local ranks = require("terra.ranks.ranks")
local report = require("terra.api.report")
local scheduler = require("terra.scheduling.scheduler")
local status = require("terra.base.status")
local step_costs = require("terra.scheduling.costs")
local threads = require("terra.base.threads")
local world_size = require("terra.ranks.world_size")
local C = abi.C

local Loop = loop.Loop(ranks.RankGroup)

local struct Engine {
  library : device.Library
  model : model.Model
  plan : plan.Plan
  ranks : ranks.RankGroup
  loop : Loop
  stage : int32
  load_ns : int64
  capture_ns : int64
  graph_bytes : int64
  step_costs : step_costs.StepCosts
  step_costs_ns : int64
  plan_memory : &int8
}

local model_open, ranks_open, loop_open = 1, 2, 3

terra Engine:start_loop(message : &C.glm_message) : int32
  var planned = &self.plan
  self.plan_memory = [&int8](C.calloc(1, planned.shape:host_bytes()))
  status.fail_if(message, self.plan_memory == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to plan a forward pass")
  var step : batch.StepPlan
  step:bind(&planned.shape, self.plan_memory)
  var chosen = scheduler.SchedulerOptions {
    engine = planned.options,
    caches_answers = planned.caches_answers,
    plans_ahead = planned.plans_ahead,
    costs = self.step_costs,
  }
  chosen.engine.num_pages = planned.num_pages
  return self.loop:init(&self.model.config, &chosen, &step, &self.ranks, message)
end

terra Engine:make_plan(wanted : &C.engine_options, message : &C.glm_message) : int32
  status.try(world_size.plan(&self.plan, &self.model, &self.library, wanted, message))
  return self.plan:require_fit(message)
end

terra Engine:free_device_memory() : int64
  var info : C.glm_device_info
  info.struct_size = sizeof(C.glm_device_info)
  if self.library.backend.device_info(self.ranks.ranks[0].device, &info) ~= C.GLM_OK then
    return 0
  end
  return info.memory_free_bytes
end

terra Engine:capture(message : &C.glm_message) : int32
  var free_bytes, begin = self:free_device_memory(), threads.now_ns()
  status.try(load.capture(&self.ranks, &self.plan, message))
  if self.plan.uses_graphs then
    self.capture_ns = threads.now_ns() - begin
    self.graph_bytes = free_bytes - self:free_device_memory()
  end
  return C.GLM_OK
end

terra Engine:measure_costs(message : &C.glm_message) : int32
  var planned, begin = &self.plan, threads.now_ns()
  self.step_costs = step_costs.unbounded()
  self.step_costs.budget_ns = [int64](planned.step_budget_ms) * 1000000
  if self.step_costs:is_bounded() or planned.options.speculate == C.ENGINE_SPECULATE_AUTO then
    status.try(costs.measure(&self.ranks, &planned.shape, &planned.options, planned.num_pages, &self.step_costs, message))
    self.step_costs_ns = threads.now_ns() - begin
  end
  return C.GLM_OK
end

terra Engine:open_model(wanted : &C.engine_options, message : &C.glm_message) : int32
  if wanted.synthetic ~= 0 then
    return self.model:read_synthetic(wanted.model_dir, wanted.num_layers, wanted.speculate, message)
  end
  return self.model:open(wanted.model_dir, wanted.speculate, message)
end

terra Engine:open(wanted : &C.engine_options, message : &C.glm_message) : int32
  status.try(options.check_struct(wanted, message))
  status.try(options.expect_own_devices(wanted, message))
  status.try(self.library:open(wanted.device, wanted.library_dir, message))
  self.stage = model_open
  status.try(self:open_model(wanted, message))
  status.try(self:make_plan(wanted, message))
  self.stage = ranks_open
  var chosen = &self.plan.options
  status.try(self.ranks:init(self.library.backend, chosen.world_size, chosen.ranks_per_device, message))
  status.try(load.ranks(&self.ranks, &self.plan, message))
  status.try(self:capture(message))
  self.ranks.is_watched = self.plan.device.info.is_asynchronous == 0
  self.ranks.watches_launches = true
  status.try(self:measure_costs(message))
  self.stage = loop_open
  return self:start_loop(message)
end

terra Engine:close() : bool
  if self.stage >= loop_open then
    self.loop:free()
    C.free(self.plan_memory)
  end
  if self.stage >= ranks_open and self.ranks:hangs() then
    return false
  end
  if self.stage >= ranks_open then
    load.free_ranks(&self.ranks)
    self.ranks:free()
  end
  if self.stage >= model_open then
    self.model:close()
    self.library:close()
  end
  return true
end

local copied_from_config = { "vocab_size", "hidden_size", "num_layers", "num_prediction_layers", "num_experts" }
local copied_from_options = { "world_size", "max_batch", "max_seq", "page_size", "expert_layout", "max_step_tokens", "speculate", "max_draft_tokens" }

terra Engine:describe(info : &C.engine_info)
  var planned = &self.plan
  var num_ranks : int64 = self.ranks.world_size
  escape
    for _, name in ipairs(copied_from_config) do
      emit quote info.[name] = self.model.config.[name] end
    end
    for _, name in ipairs(copied_from_options) do
      emit quote info.[name] = planned.options.[name] end
    end
  end
  C.memcpy(&info.device[0], &self.plan.device.info.name[0], 128)
  C.memcpy(&info.architecture[0], &self.model.config.architecture[0], 64)
  info.num_eos_tokens = self.model.config.num_eos_tokens
  C.memcpy(&info.eos_tokens[0], &self.model.config.eos_tokens[0], C.ENGINE_MAX_EOS_TOKENS * sizeof(int32))
  info.model_max_seq = planned:positions()
  info.max_seq_from = planned:max_seq_from()
  info.max_batch_from = planned:max_batch_from()
  info.kv_dtype = planned.kv_dtype
  info.num_parameters = self.model.num_parameters
  info.checkpoint_bytes = self.model.checkpoint.bytes
  info.weight_bytes = planned.weight_bytes * num_ranks
  info.kv_bytes = planned.page_bytes * planned.num_pages * num_ranks
  info.workspace_bytes = planned.buffer_bytes * num_ranks
  info.kv_bytes_per_token = planned:kv_bytes_per_token(planned.kv_dtype)
  info.load_ns = self.load_ns
  info.device_ns = self.ranks.device_ns
  info.num_graph_steps = self.ranks.num_graph_steps
  info.capture_ns = self.capture_ns
  info.graph_bytes = self.graph_bytes
  info.step_budget_ms = planned.step_budget_ms
  info.step_costs_ns = self.step_costs_ns
  info.num_graphs = self.ranks.ranks[0].num_graphs
  info.plans_ahead = terralib.select(planned.plans_ahead, 1, 0)
  self.loop:info(info)
end

terra Engine:begin_profile(message : &C.glm_message) : int32
  self.loop:enter_turn()
  var code = self.ranks:begin_profile(message)
  self.loop.is_profiled = code == C.GLM_OK
  self.loop:leave_turn()
  return code
end

terra Engine:end_profile(target : &&C.engine_text, message : &C.glm_message) : int32
  self.loop:enter_turn()
  var made = self.ranks.ranks[0].profile
  var code : int32
  if made == nil then
    code = status.fail(message, C.GLM_INVALID_ARGUMENT, "no profile is running; start one first")
  else
    code = report.write_profile(made, target, message)
  end
  self.ranks:end_profile()
  self.loop.is_profiled = false
  self.loop:leave_turn()
  return code
end

terra Engine:measure_read(bytes_per_second : &double, message : &C.glm_message) : int32
  self.loop:enter_turn()
  var code = self.ranks:measure_read(bytes_per_second, message)
  self.loop:leave_turn()
  return code
end

return { Engine = Engine }
