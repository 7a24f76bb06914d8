local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local dtypes = require("terra.base.dtypes")
local json = require("terra.base.json")
local printable = require("terra.base.printable")
local problems = require("terra.checkpoint.problems")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice

local header = {}

header.max_dimensions = 8
header.max_header_bytes = json.max_bytes
header.length_bytes = 8

local metadata_key = "__metadata__"
local max_elements = `[int64](1) << 48

local struct TensorView {
  name : rawstring
  dtype : int32
  num_dimensions : int32
  shape : int64[header.max_dimensions]
  data : &uint8
  bytes : int64
  offset : int64
  shard : int32
  is_listed : bool
  is_consumed : bool
  is_skipped : bool
}
header.TensorView = TensorView
header.TensorList = containers.Vector(TensorView)

terra TensorView:num_elements() : int64
  var count : int64 = 1
  for i = 0, self.num_dimensions do
    count = count * self.shape[i]
  end
  return count
end

terra TensorView:describe_shape(target : rawstring, capacity : int64)
  var used : int64 = C.snprintf(target, capacity, "[")
  for i = 0, self.num_dimensions do
    var separator = ", "
    if i == 0 then
      separator = ""
    end
    if used < capacity then
      used = used + C.snprintf(target + used, capacity - used, "%s%lld", separator, self.shape[i])
    end
  end
  if used < capacity then
    C.snprintf(target + used, capacity - used, "]")
  end
end

local struct HeaderReader {
  document : &json.Document
  arena : &text.Arena
  tensors : &header.TensorList
  problems : &problems.Problems
  file : rawstring
  contents : Slice
  shard : int32
  first_tensor : int64
  data_begin : int64
  data_bytes : int64
}
header.HeaderReader = HeaderReader

local complain = macro(function(self, tensor, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    problems.add(self.problems, C.GLM_INVALID_CHECKPOINT, self.file, tensor, format, [arguments])
  end
end)

terra HeaderReader:locate_header(size : &int64) : bool
  var available = self.contents.size - header.length_bytes
  if available < 0 then
    complain(self, "", "the file has %lld bytes; expected at least 8 for the header length", self.contents.size)
    return false
  end
  var length : uint64 = 0
  for i = 0, header.length_bytes do
    length = length or ([uint64](self.contents.data[i]) << (8 * i))
  end
  if length > [uint64](available) then
    complain(self, "", "the header length is %llu bytes, but only %lld bytes follow the length field", length, available)
    return false
  end
  if length > header.max_header_bytes then
    complain(self, "", "the header length is %llu bytes; the maximum is %lld", length, [int64](header.max_header_bytes))
    return false
  end
  @size = length
  return true
end

terra HeaderReader:parse_header(size : int64) : bool
  var message : C.glm_message
  message.text[0] = 0
  var content = Slice { data = self.contents.data + header.length_bytes, size = size }
  if self.document:parse(content, "header", &message) ~= C.GLM_OK then
    complain(self, "", "%s", &message.text[0])
    return false
  end
  if self.document:root().kind ~= json.object_kind then
    complain(self, "", "the header is a JSON %s, not an object", json.kind_name(self.document:root().kind))
    return false
  end
  self.data_begin = header.length_bytes + size
  self.data_bytes = self.contents.size - self.data_begin
  return true
end

terra HeaderReader:read_dtype(view : &TensorView, entry : &json.Node) : bool
  var node = self.document:find(entry, "dtype")
  if node == nil or node.kind ~= json.string_kind then
    complain(self, view.name, "the header has no dtype for this tensor")
    return false
  end
  view.dtype = dtypes.parse(node.string)
  if view.dtype == dtypes.unknown then
    complain(self, view.name, "the dtype \"%.*s\" is unknown", [int32](node.string.size), node.string.data)
    return false
  end
  return true
end

terra HeaderReader:read_shape(view : &TensorView, entry : &json.Node) : bool
  var node = self.document:find(entry, "shape")
  if node == nil or node.kind ~= json.array_kind then
    complain(self, view.name, "the header has no shape for this tensor")
    return false
  end
  if node.num_children > header.max_dimensions then
    complain(self, view.name, "the shape has %d dimensions; the maximum is %d", node.num_children, [int32](header.max_dimensions))
    return false
  end
  var count : int64 = 1
  var child = self.document:child(node)
  while child ~= nil do
    if not child.is_integer or child.integer < 0 or child.integer > max_elements or (child.integer > 0 and count > max_elements / child.integer) then
      complain(self, view.name, "dimension %d of the shape is not a non-negative integer, or the shape is too large", view.num_dimensions)
      return false
    end
    count = count * child.integer
    view.shape[view.num_dimensions] = child.integer
    view.num_dimensions = view.num_dimensions + 1
    child = self.document:next(child)
  end
  return true
end

terra HeaderReader:check_range(view : &TensorView, first : int64, last : int64) : bool
  if first < 0 or last < first then
    complain(self, view.name, "data_offsets [%lld, %lld] are negative or reversed", first, last)
    return false
  end
  if last > self.data_bytes then
    complain(self, view.name, "data_offsets [%lld, %lld] extend past the end of the data (%lld bytes)", first, last, self.data_bytes)
    return false
  end
  var expected = view:num_elements() * dtypes.bytes(view.dtype)
  if last - first ~= expected then
    var shape : int8[128]
    view:describe_shape(&shape[0], 128)
    complain(
      self, view.name, "data_offsets [%lld, %lld] cover %lld bytes, but %s %s needs %lld",
      first, last, last - first, dtypes.name(view.dtype), &shape[0], expected
    )
    return false
  end
  if first % dtypes.bytes(view.dtype) ~= 0 then
    complain(self, view.name, "the tensor begins at byte %lld of the data, which is not aligned for %s", first, dtypes.name(view.dtype))
    return false
  end
  return true
end

terra HeaderReader:read_offsets(view : &TensorView, entry : &json.Node) : bool
  var node = self.document:find(entry, "data_offsets")
  if node == nil or node.kind ~= json.array_kind or node.num_children ~= 2 then
    complain(self, view.name, "the header has no valid data_offsets for this tensor")
    return false
  end
  var first = self.document:child(node)
  var last = self.document:next(first)
  if not first.is_integer or not last.is_integer then
    complain(self, view.name, "data_offsets are not integers")
    return false
  end
  if not self:check_range(view, first.integer, last.integer) then
    return false
  end
  view.offset = self.data_begin + first.integer
  view.bytes = last.integer - first.integer
  view.data = self.contents.data + view.offset
  return true
end

terra HeaderReader:read_tensor(entry : &json.Node) : bool
  var view : TensorView
  C.memset(&view, 0, [terralib.sizeof(TensorView)])
  view.shard = self.shard
  view.name = self.arena:copy(entry.key)
  if view.name == nil then
    complain(self, "", "out of memory")
    return false
  end
  if not printable.holds(entry.key) then
    complain(self, view.name, "the tensor's name contains an unprintable character")
    return false
  end
  if entry.kind ~= json.object_kind then
    complain(self, view.name, "the header's entry for this tensor is a JSON %s, not an object", json.kind_name(entry.kind))
    return false
  end
  if not (self:read_dtype(&view, entry) and self:read_shape(&view, entry) and self:read_offsets(&view, entry)) then
    return false
  end
  if not self.tensors:push(view) then
    complain(self, view.name, "out of memory")
    return false
  end
  return true
end

local terra compare_offsets(left : &opaque, right : &opaque) : int32
  var a, b = [&TensorView](left), [&TensorView](right)
  var first, second = a.offset, b.offset
  if first == second then
    first, second = a.bytes, b.bytes
  end
  if first < second then
    return -1
  elseif first > second then
    return 1
  end
  return C.strcmp(a.name, b.name)
end

terra HeaderReader:check_coverage() : bool
  var count = self.tensors.size - self.first_tensor
  if count > 0 then
    C.qsort(self.tensors.data + self.first_tensor, count, [terralib.sizeof(TensorView)], compare_offsets)
  end
  var covered, previous = self.data_begin, ""
  for i = self.first_tensor, self.tensors.size do
    var view = self.tensors:at(i)
    if view.offset < covered then
      complain(self, view.name, "data_offsets [%lld, %lld] overlap those of %s", view.offset - self.data_begin, view.offset - self.data_begin + view.bytes, previous)
      return false
    end
    if view.offset > covered then
      complain(self, view.name, "the %lld bytes before this tensor's data do not belong to any tensor", view.offset - covered)
      return false
    end
    covered, previous = view.offset + view.bytes, view.name
  end
  if covered ~= self.contents.size then
    complain(self, "", "the last %lld bytes of the file do not belong to any tensor", self.contents.size - covered)
    return false
  end
  return true
end

terra HeaderReader:read_metadata(entry : &json.Node) : bool
  if entry.kind == json.null_kind then
    return true
  end
  var value = self.document:child(entry)
  while value ~= nil and value.kind == json.string_kind do
    value = self.document:next(value)
  end
  if entry.kind ~= json.object_kind or value ~= nil then
    complain(self, metadata_key, "expected an object with only string values")
    return false
  end
  return true
end

terra HeaderReader:read_entry(entry : &json.Node) : bool
  if text.equals(entry.key, metadata_key) then
    return self:read_metadata(entry)
  end
  return self:read_tensor(entry)
end

terra HeaderReader:read() : bool
  var size : int64 = 0
  self.first_tensor = self.tensors.size
  if not self:locate_header(&size) or not self:parse_header(size) then
    return false
  end
  var is_sound = true
  var entry = self.document:child(self.document:root())
  while entry ~= nil do
    is_sound = self:read_entry(entry) and is_sound
    entry = self.document:next(entry)
  end
  return is_sound and self:check_coverage()
end

return header
