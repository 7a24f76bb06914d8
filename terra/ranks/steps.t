local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local buffers = require("terra.plan.buffers")
local check = require("terra.base.check")
local step = require("terra.ranks.step")
local drafts = require("terra.ranks.drafts")
local rank = require("terra.ranks.rank")
local sampling = require("terra.ranks.sampling")
local shares = require("terra.scheduling.shares")
local status = require("terra.base.status")
local C = abi.C

local Rank, call = rank.Rank, rank.call
local RowShare = shares.RowShare
local StepPlan = batch.StepPlan
local num_stagings = buffers.num_stagings

return function(RankGroup, Flight, Job)
  local struct Launch {
    plan : &StepPlan
    staging : &buffers.Staging
    flight : &Flight
    index : int32
  }

  terra Rank:use_inputs(is_decode : bool)
    if is_decode then
      self.inputs = &self.buffers.decode_inputs
    else
      self.inputs = &self.buffers.inputs
    end
  end

  local terra staged(staging : &buffers.Staging, is_decode : bool) : &batch.StepInputs
    return terralib.select(is_decode, &staging.decode_inputs, &staging.inputs)
  end

  local terra copy_table_rows(target : &batch.StepInputs, plan : &StepPlan)
    var stride : int64 = plan.shape.max_pages_per_sequence
    var begin, finish = plan.page_table_row_begin * stride, plan.page_table_row_end * stride
    if finish > begin then
      C.memcpy(target.page_table + begin, plan.inputs.page_table + begin, (finish - begin) * sizeof(int32))
    end
  end

  local terra upload_inputs(self : &Rank, launch : &Launch, message : &C.glm_message) : int32
    var plan = launch.plan
    var host, device = staged(launch.staging, plan:is_decode()), self.inputs
    call(self, message, "input upload", "upload", device.data, host.data, host:unbiased_bytes(&plan.shape))
    if plan.num_biases > 0 then
      call(self, message, "bias upload", "upload", device.bias_tokens, host.bias_tokens, host:bias_bytes())
    end
    var stride : int64 = plan.shape.max_pages_per_sequence
    var begin, finish = plan.page_table_row_begin * stride, plan.page_table_row_end * stride
    if finish > begin then
      call(self, message, "page table upload", "upload", device.page_table + begin, host.page_table + begin, (finish - begin) * sizeof(int32))
    end
    return C.GLM_OK
  end

  local terra download_logits(self : &Rank, target : &float, share : &RowShare, message : &C.glm_message) : int32
    var row : int64 = self.config.vocab_size
    if target ~= nil and share.num_rows > 0 then
      call(self, message, "logits download", "download", target + row * share.begin, self.buffers.logits, row * share.num_rows * sizeof(float))
    end
    return C.GLM_OK
  end

  local terra download_forced_drafts(self : &Rank, share : &RowShare, target : &int32, message : &C.glm_message) : int32
    var source = self.buffers.ids_of_ranks + share.begin
    call(self, message, "forced draft download", "download_begin", target, source, share.num_samples * sizeof(int32))
    return C.GLM_OK
  end

  local terra download_drafts(self : &Rank, plan : &StepPlan, target : &int32, message : &C.glm_message) : int32
    call(self, message, "draft download", "download_begin", target, self.buffers.drafts_of_ranks, plan.num_draft_rows * sizeof(int32))
    return C.GLM_OK
  end

  local terra download_samples(self : &Rank, launch : &Launch, share : &RowShare, message : &C.glm_message) : int32
    var target = launch.staging:outputs_of(self.index)
    var bytes = target:short_bytes()
    if launch.flight.wants_logprobs then
      bytes = target.bytes
    end
    call(self, message, "sampled token download", "download_begin", target.data, self.buffers.outputs.data, bytes)
    if self.acceptance_rate >= 0 and self.world_size > 1 then
      status.try(download_forced_drafts(self, share, target.token_ids, message))
    end
    if self.index == 0 and self.world_size > 1 and launch.plan.num_draft_rows > 0 then
      return download_drafts(self, launch.plan, target.draft_ids, message)
    end
    return C.GLM_OK
  end

  local terra upload_masks(self : &Rank, launch : &Launch, message : &C.glm_message) : int32
    var plan = launch.plan
    var host, device = staged(launch.staging, plan:is_decode()), self.inputs
    if plan:awaits_masks() then
      call(self, message, "mask row upload", "upload", device.state_row, host.state_row, host:row_control_bytes())
    end
    if plan.num_masks > 0 then
      call(self, message, "mask upload", "upload", device.masks, host.masks, plan:mask_bytes())
    end
    return C.GLM_OK
  end

  terra Rank:sample(plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
    status.try(download_logits(self, plan.logits, share, message))
    if share.num_samples > 0 then
      return sampling.sample(self, plan, share, message)
    end
    return C.GLM_OK
  end

  local terra predict(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
    status.try(drafts.begin(self, plan, message))
    status.try(step.predict(self, plan, message))
    if plan.num_draft_rows == 0 then
      return C.GLM_OK
    end
    var share = self:share_of_drafts(plan)
    status.try(download_logits(self, plan.draft_logits, &share, message))
    status.try(drafts.draw(self, plan, &share, message))
    return drafts.keep(self, plan, message)
  end

  local terra queue_sampling(self : &Rank, launch : &Launch, message : &C.glm_message) : int32
    var plan, share = launch.plan, self:share_of(launch.plan)
    status.try(upload_masks(self, launch, message))
    status.try(self:sample(plan, &share, message))
    if plan.num_sample_rows > 0 then
      status.try(sampling.accept(self, plan, &share, message))
    end
    if plan.shape:drafts_with_layer() then
      status.try(predict(self, plan, message))
    end
    if share.num_samples > 0 then
      status.try(download_samples(self, launch, &share, message))
    end
    call(self, message, "step", "event_record", self.step_end[launch.index])
    return C.GLM_OK
  end

  terra Rank:has_graph_for(plan : &StepPlan) : bool
    var is_plain = plan:is_decode() and plan.logits == nil and not self:watches_operations()
    return is_plain and plan.num_tokens <= self.num_graphs
  end

  local terra compute_or_replay(self : &Rank, launch : &Launch, message : &C.glm_message) : int32
    if not launch.flight.is_graph then
      return step.forward(self, launch.plan, message)
    end
    call(self, message, "graph replay", "graph_replay", self.graphs[launch.plan.num_tokens - 1])
    return C.GLM_OK
  end

  local terra launch_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var launch = [&Launch](context)
    self:use_inputs(launch.plan:is_decode())
    if self.profile ~= nil then
      self.profile:begin_step()
    end
    call(self, message, "step", "event_record", self.step_begin[launch.index])
    status.try(upload_inputs(self, launch, message))
    status.try(compute_or_replay(self, launch, message))
    if launch.plan:awaits_masks() then
      call(self, message, "step", "event_record", self.forward_end[launch.index])
      return C.GLM_OK
    end
    return queue_sampling(self, launch, message)
  end

  local terra sample_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var launch = [&Launch](context)
    call(self, message, "step", "event_record", self.sampling_begin[launch.index])
    return queue_sampling(self, launch, message)
  end

  terra RankGroup:num_in_flight() : int64
    return self.num_launched - self.num_landed
  end

  terra RankGroup:last_landed() : int32
    return [int32]((self.num_landed + num_stagings - 1) % num_stagings)
  end

  terra RankGroup:launch_of(plan : &StepPlan, step : int64) : Launch
    var index = [int32](step % num_stagings)
    return Launch { plan = plan, staging = &self.ranks[0].buffers.stagings[index], flight = &self.flights[index], index = index }
  end

  terra RankGroup:run_launch(job : Job, context : &opaque, message : &C.glm_message) : int32
    var was_watched = self.is_watched
    self.is_watched = was_watched or self.watches_launches
    var code = self:run(job, context, message)
    self.is_watched = was_watched
    return code
  end

  terra RankGroup:launch(plan : &StepPlan, message : &C.glm_message) : int32
    check.invariant(self:num_in_flight() < num_stagings, "there are more forward passes in flight than staging buffers")
    var launch = self:launch_of(plan, self.num_launched)
    var host, flight = staged(launch.staging, plan:is_decode()), launch.flight
    host:pack(plan)
    copy_table_rows(host, plan)
    flight.num_logit_rows = plan.num_logit_rows
    flight.num_sample_rows = plan.num_sample_rows
    flight.num_draft_rows = plan.num_draft_rows
    flight.leaves_drafts = false
    flight.wants_logprobs = plan:wants_logprobs()
    flight.is_graph = self.ranks[0]:has_graph_for(plan)
    flight.awaits_masks = plan:awaits_masks()
    status.try(self:run_launch(launch_job, &launch, message))
    self.num_launched = self.num_launched + 1
    return C.GLM_OK
  end

  terra RankGroup:keep_launched(code : int32) : int32
    if code ~= C.GLM_OK then
      self.num_launched = self.num_launched - 1
    end
    return code
  end

  terra RankGroup:sample(plan : &StepPlan, message : &C.glm_message) : int32
    var launch = self:launch_of(plan, self.num_launched - 1)
    staged(launch.staging, plan:is_decode()):pack_masks(plan)
    if plan:lacks_a_drafting_row() then
      launch.flight.leaves_drafts = true
      plan.num_draft_rows = 0
    end
    return self:keep_launched(self:run_launch(sample_job, &launch, message))
  end

  local terra await_forward_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var index = @[&int32](context)
    call(self, message, "forward pass (set check_operations to 1 to identify the operation and layer)", "event_synchronise", self.forward_end[index])
    return C.GLM_OK
  end

  terra RankGroup:await_forward(message : &C.glm_message) : int32
    var index = [int32]((self.num_launched - 1) % num_stagings)
    return self:keep_launched(self:run(await_forward_job, &index, message))
  end

  local terra land_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var index = @[&int32](context)
    call(self, message, "forward pass (set check_operations to 1 to identify the operation and layer)", "event_synchronise", self.step_end[index])
    if self.profile ~= nil then
      status.try(self.profile:end_step(message))
    end
    return C.GLM_OK
  end

  terra RankGroup:elapsed_ns(begin : &opaque, finish : &opaque) : int64
    var milliseconds : float = 0
    self.backend.event_elapsed(self.ranks[0].device, begin, finish, &milliseconds)
    return [int64](milliseconds * 1e6)
  end

  terra RankGroup:take_time(index : int32)
    var first, flight = &self.ranks[0], &self.flights[index]
    if flight.awaits_masks then
      flight.device_ns = self:elapsed_ns(first.step_begin[index], first.forward_end[index])
        + self:elapsed_ns(first.sampling_begin[index], first.step_end[index])
    else
      flight.device_ns = self:elapsed_ns(first.step_begin[index], first.step_end[index])
    end
    self.device_ns = self.device_ns + flight.device_ns
    if self.flights[index].is_graph then
      self.num_graph_steps = self.num_graph_steps + 1
    end
  end

  terra Flight:take_results(share : &RowShare, source : &batch.StepOutputs, target : &batch.StepOutputs)
    escape
      for _, array in ipairs(batch.results_of_rows) do
        local is_short = not array.name:match("^top_")
        local width = is_short and 1 or C.GLM_MAX_LOGPROBS
        emit quote
          if is_short or self.wants_logprobs then
            var bytes = [int64](share.num_samples) * width * [terralib.sizeof(array.type)]
            C.memcpy(target.[array.name] + [int64](share.begin) * width, source.[array.name], bytes)
          end
        end
      end
    end
  end

  terra RankGroup:take_results(index : int32, outputs : &batch.StepOutputs)
    var flight, staging = &self.flights[index], &self.ranks[0].buffers.stagings[index]
    for rank = 0, self.world_size do
      var share = shares.of(flight.num_logit_rows, flight.num_sample_rows, rank, self.world_size)
      var source = staging:outputs_of(rank)
      flight:take_results(&share, &source, outputs)
    end
    var drafts = staging:outputs_of(0).draft_ids
    for i = 0, flight.num_draft_rows do
      outputs.draft_ids[i] = terralib.select(flight.leaves_drafts, -1, drafts[i])
    end
  end

  terra RankGroup:land(outputs : &batch.StepOutputs, message : &C.glm_message) : int32
    check.invariant(self:num_in_flight() > 0, "no forward pass is in flight")
    var index = [int32](self.num_landed % num_stagings)
    self.num_landed = self.num_landed + 1
    status.try(self:run(land_job, &index, message))
    self:take_time(index)
    self:take_results(index, outputs)
    return C.GLM_OK
  end

  terra RankGroup:step(plan : &StepPlan, message : &C.glm_message) : int32
    status.try(self:launch(plan, message))
    return self:land(&plan.outputs, message)
  end
end
