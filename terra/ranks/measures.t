local abi = require("terra.base.abi")
local numbers = require("terra.base.numbers")
local profile = require("terra.ranks.profile")
local rank = require("terra.ranks.rank")
local status = require("terra.base.status")
local C = abi.C

local Rank, call = rank.Rank, rank.call

local smaller = numbers.smaller(int64)

local operations_per_layer = 16
local operations_outside_layers = 16
local most_bytes_read = 8000000000LL

return function(RankGroup)
  terra RankGroup:last_device_ns() : int64
    return self.flights[self:last_landed()].device_ns
  end

  terra RankGroup:last_is_graph() : int32
    return terralib.select(self.flights[self:last_landed()].is_graph, 1, 0)
  end

  terra RankGroup:begin_profile(message : &C.glm_message) : int32
    self:end_profile()
    var first = &self.ranks[0]
    var num_predictions = first.config.num_prediction_layers
    var capacity = (first.config.num_layers + num_predictions) * operations_per_layer + (1 + num_predictions) * operations_outside_layers
    var made = [&profile.Profile](C.malloc(sizeof(profile.Profile)))
    status.fail_if(message, made == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to time operations")
    var code = made:init(self.backend, first.device, capacity, message)
    if code ~= C.GLM_OK then
      made:free()
      C.free(made)
      return code
    end
    first.profile = made
    return C.GLM_OK
  end

  terra RankGroup:end_profile()
    self.ranks[0]:stop_profile()
  end

  local terra measure_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    if self.index ~= 0 then
      return C.GLM_OK
    end
    var bytes = smaller(self.weight_bytes, most_bytes_read)
    call(self, message, "read rate measurement", "measure_read", self.weight_memory, bytes, [&double](context))
    return C.GLM_OK
  end

  terra RankGroup:measure_read(bytes_per_second : &double, message : &C.glm_message) : int32
    return self:run(measure_job, bytes_per_second, message)
  end
end
