local abi = require("terra.base.abi")
local C = abi.C

local acceptance = {}

local num_halvings = 30
local off = -1

local terra length_at(rate : double, most_drafts : int32) : double
  var length, chance = 1.0, 1.0
  for i = 0, most_drafts do
    chance = chance * rate
    length = length + chance
  end
  return length
end

terra acceptance.rate(options : &C.engine_options) : float
  if options.acceptance_length == 0 then
    return off
  end
  var least, most = 0.0, 1.0
  for i = 0, num_halvings do
    var middle = (least + most) / 2
    if length_at(middle, options.max_draft_tokens) < options.acceptance_length then
      least = middle
    else
      most = middle
    end
  end
  return least
end

return acceptance
