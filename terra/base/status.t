local abi = require("terra.base.abi")
local printable = require("terra.base.printable")
local C = abi.C

local status = {}

status.fail = macro(function(message, code, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    var target = [&C.glm_message](message)
    if target ~= nil then
      C.snprintf(&target.text[0], C.GLM_MESSAGE_CAPACITY, format, [arguments])
      printable.clean(&target.text[0], C.GLM_MESSAGE_CAPACITY)
    end
  in
    [int32](code)
  end
end)

terra status.clear(message : &C.glm_message)
  if message ~= nil then
    message.text[0] = 0
  end
end

status.try = macro(function(expression)
  return quote
    var code : int32 = expression
    if code ~= C.GLM_OK then
      return code
    end
  end
end)

status.fail_if = macro(function(message, condition, code, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    if condition then
      return status.fail(message, code, format, [arguments])
    end
  end
end)

status.refuse = macro(function(message, condition, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    status.fail_if(message, condition, C.GLM_INVALID_ARGUMENT, format, [arguments])
  end
end)

return status
