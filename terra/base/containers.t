local abi = require("terra.base.abi")
local check = require("terra.base.check")
local numbers = require("terra.base.numbers")
local C = abi.C

local greater = numbers.greater(int64)

local containers = {}

containers.Vector = terralib.memoize(function(T)
  local struct Vector {
    data : &T
    size : int64
    capacity : int64
  }
  Vector.metamethods.__typename = function()
    return "Vector(" .. tostring(T) .. ")"
  end

  terra Vector:init()
    self.data = nil
    self.size = 0
    self.capacity = 0
  end

  terra Vector:free()
    C.free(self.data)
    self:init()
  end

  terra Vector:clear()
    self.size = 0
  end

  terra Vector:reserve(capacity : int64) : bool
    if capacity <= self.capacity then
      return true
    end
    var grown = greater(greater(2 * self.capacity, capacity), 8)
    var data = [&T](C.realloc(self.data, grown * [terralib.sizeof(T)]))
    if data == nil then
      return false
    end
    self.data = data
    self.capacity = grown
    return true
  end

  terra Vector:resize(size : int64) : bool
    if not self:reserve(size) then
      return false
    end
    self.size = size
    return true
  end

  terra Vector:push(value : T) : bool
    if not self:reserve(self.size + 1) then
      return false
    end
    self.data[self.size] = value
    self.size = self.size + 1
    return true
  end

  terra Vector:append(values : &T, count : int64) : bool
    if not self:reserve(self.size + count) then
      return false
    end
    C.memcpy(self.data + self.size, values, count * [terralib.sizeof(T)])
    self.size = self.size + count
    return true
  end

  terra Vector:at(index : int64) : &T
    check.bounds(index, self.size)
    return &self.data[index]
  end

  terra Vector:last() : &T
    check.invariant(self.size > 0, "last was called on an empty vector")
    return &self.data[self.size - 1]
  end

  terra Vector:pop() : T
    check.invariant(self.size > 0, "pop was called on an empty vector")
    self.size = self.size - 1
    return self.data[self.size]
  end

  return Vector
end)

return containers
