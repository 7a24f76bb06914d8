local abi = require("terra.base.abi")
local check = require("terra.base.check")
local containers = require("terra.base.containers")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Sequence = sequence.Sequence

local struct Segment {
  sequence : &Sequence
  num_tokens : int32
  sample_row : int32
  first_prompt_row : int32
  num_prompt_rows : int32
  draft_row : int32
  is_decode : bool
  awaits_mask : bool
  is_of_layer : bool
}

terra Segment:num_drafts() : int32
  return terralib.select(self.is_decode, self.num_tokens - 1, 0)
end

local SegmentList = containers.Vector(Segment)

terra SegmentList:forget(item : &Sequence) : int32
  var count = 0
  for i = 0, self.size do
    if self.data[i].sequence == item then
      self.data[i].sequence = nil
      count = count + self.data[i].num_tokens
    end
  end
  return count
end

local struct Pieces {
  num_decode_rows : int32
  decode_context : int64
  limit_ns : int64
  num_tokens : int64
  context : int64
}

local SequenceList = containers.Vector(&Sequence)

local terra position_of(list : &SequenceList, item : &Sequence) : int64
  for i = 0, list.size do
    if list.data[i] == item then
      return i
    end
  end
  return -1
end

local terra remove(list : &SequenceList, item : &Sequence) : bool
  var position = position_of(list, item)
  if position < 0 then
    return false
  end
  C.memmove(list.data + position, list.data + position + 1, (list.size - position - 1) * sizeof([&Sequence]))
  list.size = list.size - 1
  return true
end

local terra append(list : &SequenceList, item : &Sequence)
  check.invariant(list.size < list.capacity, "a sequence list exceeded its reserved capacity")
  list:push(item)
end

local terra insert_in_order(list : &SequenceList, item : &Sequence)
  append(list, item)
  var position = list.size - 1
  while position > 0 and item:precedes(list.data[position - 1]) do
    list.data[position] = list.data[position - 1]
    position = position - 1
  end
  list.data[position] = item
end

return {
  Pieces = Pieces,
  Segment = Segment,
  SegmentList = SegmentList,
  SequenceList = SequenceList,
  append = append,
  remove = remove,
  insert_in_order = insert_in_order,
}
