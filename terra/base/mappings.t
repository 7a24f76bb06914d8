local abi = require("terra.base.abi")
local spinlock = require("terra.base.spinlock")
local C = abi.C

local mappings = {}

local Action = C.sigaction:gettype().parameters[2].type
local page_bytes = 4096

local struct Mapping {
  next : &Mapping
  previous : &Mapping
  data : &uint8
  size : int64
  is_broken : bool
}
mappings.Mapping = Mapping

local held = global(int32, 0)
local first = global(&Mapping, `[&Mapping](nil))
local previous_action = global(Action)

local terra find(address : &uint8) : &Mapping
  var mapping = first
  while mapping ~= nil and (address < mapping.data or address >= mapping.data + mapping.size) do
    mapping = mapping.next
  end
  return mapping
end

local terra fill_with_zeros(address : &uint8) : bool
  spinlock.lock(&held)
  var mapping = find(address)
  if mapping ~= nil then
    var begin = (address - mapping.data) / page_bytes * page_bytes
    var flags = C.MAP_PRIVATE or C.MAP_FIXED or C.MAP_ANONYMOUS
    var filled = C.mmap(mapping.data + begin, mapping.size - begin, C.PROT_READ, flags, -1, 0)
    mapping.is_broken = true
    if [&uint8](filled) ~= mapping.data + begin then
      mapping = nil
    end
  end
  spinlock.unlock(&held)
  return mapping ~= nil
end

local terra handle(number : int32, info : &C.siginfo_t, context : &opaque)
  var kept = @C.__errno_location()
  if info.si_code <= 0 or not fill_with_zeros([&uint8](info._sifields._sigfault.si_addr)) then
    C.sigaction(number, &previous_action, nil)
    C.raise(number)
  end
  @C.__errno_location() = kept
end

local terra install()
  var action : Action
  C.memset(&action, 0, sizeof(Action))
  action.__sigaction_handler.sa_sigaction = handle
  action.sa_flags = C.SA_SIGINFO or C.SA_ONSTACK
  C.sigaction(C.SIGBUS, &action, &previous_action)
end

local terra uninstall()
  var current : Action
  C.sigaction(C.SIGBUS, nil, &current)
  if current.__sigaction_handler.sa_sigaction == handle then
    C.sigaction(C.SIGBUS, &previous_action, nil)
  end
end

terra mappings.add(data : &uint8, size : int64) : &Mapping
  var mapping = [&Mapping](C.calloc(1, sizeof(Mapping)))
  if mapping == nil then
    return nil
  end
  mapping.data = data
  mapping.size = size
  spinlock.lock(&held)
  if first == nil then
    install()
  else
    first.previous = mapping
  end
  mapping.next = first
  first = mapping
  spinlock.unlock(&held)
  return mapping
end

terra mappings.remove(mapping : &Mapping)
  spinlock.lock(&held)
  if mapping.next ~= nil then
    mapping.next.previous = mapping.previous
  end
  if mapping.previous ~= nil then
    mapping.previous.next = mapping.next
  else
    first = mapping.next
  end
  if first == nil then
    uninstall()
  end
  spinlock.unlock(&held)
  C.free(mapping)
end

return mappings
