local numbers = {}

numbers.smaller = terralib.memoize(function(Number)
  local terra smaller(a : Number, b : Number) : Number
    return terralib.select(a < b, a, b)
  end
  return smaller
end)

numbers.greater = terralib.memoize(function(Number)
  local terra greater(a : Number, b : Number) : Number
    return terralib.select(a > b, a, b)
  end
  return greater
end)

terra numbers.mask_words(num_tokens : int64) : int64
  return (num_tokens + 31) / 32
end

return numbers
