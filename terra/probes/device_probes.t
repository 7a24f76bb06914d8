local abi = require("terra.base.abi")
local gpus = require("terra.ranks.gpus")
local C = abi.C

local terra device_find_gpus(root : rawstring, count : &int32, message : &C.glm_message) : int32
  var found : gpus.Gpus
  var code = found:find(root, message)
  @count = found.count
  return code
end

return { probes = { device_find_gpus = device_find_gpus } }
