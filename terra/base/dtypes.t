local abi = require("terra.base.abi")
local codes = require("terra.base.codes")
local text = require("terra.base.text")
local C = abi.C

local dtypes = {}

local other_kinds = 16

dtypes.table = {
  { name = "F32", option = "float32", bytes = 4, code = C.GLM_DTYPE_F32 },
  { name = "BF16", option = "bfloat16", bytes = 2, code = C.GLM_DTYPE_BF16 },
  { name = "F8_E4M3", option = "fp8_e4m3", bytes = 1, code = C.GLM_DTYPE_F8_E4M3 },
  { name = "F8_E5M2", bytes = 1 },
  { name = "F8_E8M0", bytes = 1 },
  { name = "F16", bytes = 2 },
  { name = "F64", bytes = 8 },
  { name = "BOOL", bytes = 1 },
  { name = "I8", bytes = 1 },
  { name = "U8", bytes = 1 },
  { name = "I16", bytes = 2 },
  { name = "U16", bytes = 2 },
  { name = "I32", bytes = 4 },
  { name = "U32", bytes = 4 },
  { name = "I64", bytes = 8 },
  { name = "U64", bytes = 8 },
}

for index, dtype in ipairs(dtypes.table) do
  dtype.code = dtype.code or other_kinds + index
end

local options = {}
for _, dtype in ipairs(dtypes.table) do
  if dtype.option then
    table.insert(options, dtype)
  end
end

dtypes.unknown = -1

terra dtypes.parse(name : text.Slice) : int32
  escape
    for _, dtype in ipairs(dtypes.table) do
      emit quote
        if text.equals(name, [dtype.name]) then
          return [dtype.code]
        end
      end
    end
  end
  return dtypes.unknown
end

dtypes.name = codes.name_of(dtypes.table, "unknown")
dtypes.option_name = codes.field_of(options, "option", rawstring, "unknown")
dtypes.bytes = codes.field_of(dtypes.table, "bytes", int64, 0)

return dtypes
