local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local status = require("terra.base.status")
local weights_layout = require("terra.model.layout")
local C = abi.C

local options = {}

options.fields = {
  { name = "world_size", otherwise = 0, least = 0, most = 64 },
  { name = "max_batch", otherwise = 0, least = 0, most = 65536 },
  { name = "max_seq", otherwise = 0, least = 0, most = 2 ^ 26 },
  { name = "page_size", otherwise = 16, least = 1, most = 65536 },
  { name = "num_pages", otherwise = 0, least = 0, most = 2 ^ 30 },
  { name = "expert_layout", otherwise = 0, least = 0, most = 2 },
  { name = "num_threads", otherwise = 0, least = 0, most = 4096 },
  { name = "max_step_tokens", otherwise = 0, least = 0, most = 2 ^ 20 },
  { name = "prefill_chunk", otherwise = 0, least = 0, most = 2 ^ 26 },
  { name = "max_queue", otherwise = 1024, least = 1, most = 2 ^ 24 },
  { name = "prefix_cache", otherwise = 1, least = 0, most = 1 },
  { name = "kv_dtype", otherwise = -1, least = -1, most = C.GLM_DTYPE_F8_E4M3 },
  { name = "max_logit_rows", otherwise = 0, least = 0, most = 65536 },
  { name = "graphs", otherwise = -1, least = -1, most = 1 },
  { name = "plan_ahead", otherwise = -1, least = -1, most = 1 },
  { name = "check_operations", otherwise = 0, least = 0, most = 1 },
  { name = "synthetic", otherwise = 0, least = 0, most = 1 },
  { name = "num_layers", otherwise = 0, least = 0, most = 65536 },
  { name = "kv_events", otherwise = 0, least = 0, most = 1 },
  { name = "step_budget_ms", otherwise = -1, least = -1, most = 3600000 },
  { name = "ranks_per_device", otherwise = 1, least = 1, most = 8 },
  { name = "max_draft_tokens", otherwise = 0, least = 0, most = C.ENGINE_MAX_DRAFT_TOKENS },
  { name = "speculate", otherwise = 0, least = 0, most = C.ENGINE_SPECULATE_MTP },
  { name = "memory_limit_bytes", otherwise = 0, least = 0, most = 2 ^ 60 },
  { name = "memory_limit_percent", otherwise = 0, least = 0, most = 100 },
  { name = "device_memory_bytes", otherwise = 0, least = 0, most = 2 ^ 60 },
}

local keeps_zero = { prefix_cache = true, kv_dtype = true, graphs = true, plan_ahead = true, step_budget_ms = true }

terra options.default(target : &C.engine_options)
  C.memset(target, 0, sizeof(C.engine_options))
  target.struct_size = sizeof(C.engine_options)
  target.device = "auto"
  escape
    for _, field in ipairs(options.fields) do
      emit quote target.[field.name] = [field.otherwise] end
    end
  end
end

terra options.fill_defaults(target : &C.engine_options)
  escape
    for _, field in ipairs(options.fields) do
      if not keeps_zero[field.name] then
        emit quote
          if target.[field.name] == 0 then
            target.[field.name] = [field.otherwise]
          end
        end
      end
    end
  end
end

terra options.check_struct(given : &C.engine_options, message : &C.glm_message) : int32
  status.refuse(message, given == nil, "options is null")
  status.refuse(message, given.struct_size ~= sizeof(C.engine_options), "options.struct_size is %u; expected %u, the size of this engine's engine_options", given.struct_size, [uint32](sizeof(C.engine_options)))
  return C.GLM_OK
end

terra options.expect_own_devices(given : &C.engine_options, message : &C.glm_message) : int32
  status.refuse(message, given.device_memory_bytes ~= 0, "device_memory_bytes is %lld; only engine_plan accepts this option", given.device_memory_bytes)
  return C.GLM_OK
end

terra options.check_ranges(given : &C.engine_options, message : &C.glm_message) : int32
  escape
    for _, field in ipairs(options.fields) do
      emit quote
        status.refuse(message, given.[field.name] < [field.least] or given.[field.name] > [field.most], [field.name .. " is %lld; expected %lld to %lld"], [int64](given.[field.name]), [int64]([field.least]), [int64]([field.most]))
      end
    end
  end
  return C.GLM_OK
end

terra options.check_acceptance(given : &C.engine_options, message : &C.glm_message) : int32
  var wanted, most = given.acceptance_length, given.max_draft_tokens + 1
  status.refuse(message, wanted ~= 0 and not (wanted >= 1 and wanted <= most), "acceptance_length is %g; expected 1 to %d (max_draft_tokens + 1)", [double](wanted), most)
  status.refuse(message, wanted ~= 0 and given.speculate == C.ENGINE_SPECULATE_OFF, "acceptance_length is %g, but no drafts are made; expected speculate with acceptance_length", [double](wanted))
  status.refuse(message, wanted ~= 0 and given.synthetic == 0, "acceptance_length is %g; expected 0 (acceptance by the model), because a forced acceptance changes the text and only a synthetic model accepts it", [double](wanted))
  return C.GLM_OK
end

terra options.resolve_drafts(resolved : &C.engine_options, model : &config.ModelConfig, message : &C.glm_message) : int32
  if resolved.speculate == C.ENGINE_SPECULATE_MTP then
    status.refuse(message, model.num_prediction_layers == 0, "speculate is mtp, but the model has no prediction layer; use speculate lookup:N")
    status.refuse(message, resolved.max_draft_tokens > 1, "max_draft_tokens is %d; expected 1 with speculate mtp, because the prediction layer drafts one token", resolved.max_draft_tokens)
    resolved.max_draft_tokens = 1
  end
  status.refuse(message, resolved.speculate ~= C.ENGINE_SPECULATE_OFF and resolved.max_draft_tokens == 0, "max_draft_tokens is 0; expected 1 to %d with speculate", [C.ENGINE_MAX_DRAFT_TOKENS])
  return options.check_acceptance(resolved, message)
end

terra options.resolve(
  given : &C.engine_options,
  model : &config.ModelConfig,
  resolved : &C.engine_options,
  message : &C.glm_message
) : int32
  status.try(options.check_struct(given, message))
  @resolved = @given
  options.fill_defaults(resolved)
  status.try(options.check_ranges(resolved, message))
  status.refuse(message, resolved.num_layers > 0 and resolved.synthetic == 0, "num_layers is %d; expected 0 (all layers), because only a synthetic model can have fewer", resolved.num_layers)
  status.try(options.resolve_drafts(resolved, model, message))
  status.refuse(message, resolved.memory_limit_bytes > 0 and resolved.memory_limit_percent > 0, "memory_limit_bytes and memory_limit_percent cannot be used together")
  status.refuse(message, resolved.max_seq > model.max_position_embeddings, "max_seq %d exceeds the model's maximum context length, %d (max_position_embeddings in config.json)", resolved.max_seq, model.max_position_embeddings)
  resolved.expert_layout = weights_layout.resolve_expert_layout(model, resolved.world_size, resolved.expert_layout)
  return C.GLM_OK
end

return options
