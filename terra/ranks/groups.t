local abi = require("terra.base.abi")
local status = require("terra.base.status")
local C = abi.C

local groups = {}

local most_ranks = 64

terra groups.check(world_size : int32, ranks_per_device : int32, message : &C.glm_message) : int32
  status.refuse(message, world_size % ranks_per_device ~= 0, "world_size is %d; expected a multiple of ranks_per_device (%d)", world_size, ranks_per_device)
  return C.GLM_OK
end

terra groups.create(
  backend : &C.glm_backend,
  world_size : int32,
  ranks_per_device : int32,
  group : &&C.glm_group,
  message : &C.glm_message
) : int32
  var devices : int32[most_ranks]
  for rank = 0, world_size do
    devices[rank] = rank / ranks_per_device
  end
  var options = C.glm_group_options { struct_size = sizeof(C.glm_group_options), world_size = world_size, devices = nil }
  if ranks_per_device > 1 then
    options.devices = &devices[0]
  end
  return backend.group_create(&options, group, message)
end

return groups
