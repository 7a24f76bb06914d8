local containers = require("terra.base.containers")
local spinlock = require("terra.base.spinlock")

local handles = { engine_kind = 1, state_kind = 2, text_kind = 3 }

local index_shift = 4
local generation_shift = 32

local struct Slot {
  object : &opaque
  owner : &opaque
  kind : int32
  generation : uint32
}

local Slots = containers.Vector(Slot)
local held = global(int32, 0)
local slots = global(Slots, `Slots { nil, 0, 0 })
local num_live = global(int64, 0)
local last_generation = global(uint32, 0)

local terra handle_of(index : int64) : &opaque
  var generation = [uint64](slots:at(index).generation)
  return [&opaque]((generation << generation_shift) or ([uint64](index + 1) << index_shift))
end

local terra find_slot(handle : &opaque, kind : int32) : &Slot
  var bits = [uint64](handle)
  var index = [int64]((bits and 0xFFFFFFFFULL) >> index_shift) - 1
  if index < 0 or index >= slots.size or handle_of(index) ~= handle then
    return nil
  end
  var slot = slots:at(index)
  if slot.object == nil or slot.kind ~= kind then
    return nil
  end
  return slot
end

local terra free_index() : int64
  for i = 0, slots.size do
    if slots:at(i).object == nil then
      return i
    end
  end
  if not slots:resize(slots.size + 1) then
    return -1
  end
  return slots.size - 1
end

local terra open(kind : int32, object : &opaque, owner : &opaque) : &opaque
  var index = free_index()
  if index < 0 then
    return nil
  end
  last_generation = last_generation + 1
  @slots:at(index) = Slot { object = object, owner = owner, kind = kind, generation = last_generation }
  num_live = num_live + 1
  return handle_of(index)
end

local terra clear(slot : &Slot)
  slot.object = nil
  num_live = num_live - 1
end

local terra release_memory()
  if num_live == 0 then
    slots:free()
  end
end

terra handles.open(kind : int32, object : &opaque, owner : &opaque) : &opaque
  spinlock.lock(&held)
  var handle = open(kind, object, owner)
  spinlock.unlock(&held)
  return handle
end

terra handles.find(kind : int32, handle : &opaque) : &opaque
  spinlock.lock(&held)
  var slot = find_slot(handle, kind)
  var object : &opaque = nil
  if slot ~= nil then
    object = slot.object
  end
  spinlock.unlock(&held)
  return object
end

terra handles.close(kind : int32, handle : &opaque, owner : &opaque) : &opaque
  spinlock.lock(&held)
  var slot = find_slot(handle, kind)
  var object : &opaque = nil
  if slot ~= nil and slot.owner == owner then
    object = slot.object
    clear(slot)
    release_memory()
  end
  spinlock.unlock(&held)
  return object
end

terra handles.close_owned(owner : &opaque)
  spinlock.lock(&held)
  for i = 0, slots.size do
    var slot = slots:at(i)
    if slot.object ~= nil and slot.owner == owner then
      clear(slot)
    end
  end
  release_memory()
  spinlock.unlock(&held)
end

return handles
