local codes = {}

function codes.field_of(entries, field, type, otherwise)
  return terra(code : int32) : type
    escape
      for _, entry in ipairs(entries) do
        emit quote
          if code == [entry.code] then
            return [entry[field]]
          end
        end
      end
    end
    return otherwise
  end
end

function codes.name_of(entries, otherwise)
  return codes.field_of(entries, "name", rawstring, otherwise)
end

return codes
