local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local printable = require("terra.base.printable")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local problems = {}

problems.max_kept = 1000
problems.name_capacity = 256
problems.text_capacity = 512

local struct Problem {
  status : int32
  file : int8[problems.name_capacity]
  tensor : int8[problems.name_capacity]
  text : int8[problems.text_capacity]
}
problems.Problem = Problem

local struct Problems {
  list : containers.Vector(Problem)
  total : int64
}
problems.Problems = Problems

terra Problems:init()
  self.list:init()
  self.total = 0
end

terra Problems:free()
  self.list:free()
end

terra Problems:next(code : int32, file : rawstring, tensor : rawstring) : &Problem
  self.total = self.total + 1
  if self.list.size >= problems.max_kept or not self.list:resize(self.list.size + 1) then
    return nil
  end
  var problem = self.list:last()
  problem.status = code
  printable.copy_into(&problem.file[0], problems.name_capacity, text.slice(file))
  printable.copy_into(&problem.tensor[0], problems.name_capacity, text.slice(tensor))
  problem.text[0] = 0
  return problem
end

problems.add = macro(function(target, code, file, tensor, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    var problem = target:next([code], [file], [tensor])
    if problem ~= nil then
      C.snprintf(&problem.text[0], problems.text_capacity, [format], [arguments])
      printable.clean(&problem.text[0], problems.text_capacity)
    end
  end
end)

local shown_problems = 3

terra Problem:append_to(target : rawstring, capacity : int64, used : int64, separator : rawstring) : int64
  if used >= capacity then
    return used
  end
  var colon = ": "
  if self.tensor[0] == 0 then
    colon = ""
  end
  return used + C.snprintf(
    target + used, capacity - used, "%s%s: %s%s%s",
    separator, &self.file[0], &self.tensor[0], colon, &self.text[0]
  )
end

terra Problems:describe(directory : rawstring, target : rawstring, capacity : int64)
  var used : int64 = C.snprintf(target, capacity, "%.256s", directory)
  if self.total > shown_problems then
    used = used + C.snprintf(target + used, capacity - used, [" (%lld problems, showing the first " .. shown_problems .. ")"], self.total)
  end
  var separator = ": "
  for i = 0, self.list.size do
    if i < shown_problems then
      used = self.list:at(i):append_to(target, capacity, used, separator)
      separator = "; "
    end
  end
end

terra Problems:report(directory : rawstring, message : &C.glm_message) : int32
  if self.total == 0 then
    return C.GLM_OK
  end
  status.fail_if(message, self.list.size == 0, C.GLM_OUT_OF_MEMORY, "%s: out of memory while recording problems found in the checkpoint", directory)
  var described : C.glm_message
  self:describe(directory, &described.text[0], C.GLM_MESSAGE_CAPACITY)
  return status.fail(message, self.list:at(0).status, "%s", &described.text[0])
end

return problems
