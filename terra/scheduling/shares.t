local shares = {}

local struct RowShare {
  begin : int32
  num_rows : int32
  num_samples : int32
  rows_each : int32
}
shares.RowShare = RowShare

terra shares.rows_each(num_rows : int64, world_size : int64) : int64
  return (num_rows + world_size - 1) / world_size
end

local terra between(least : int32, value : int32, most : int32) : int32
  value = terralib.select(value < least, least, value)
  return terralib.select(value > most, most, value)
end

terra shares.of(num_rows : int32, num_samples : int32, rank : int32, world_size : int32) : RowShare
  var share : RowShare
  share.rows_each = [int32](shares.rows_each(num_rows, world_size))
  share.begin = between(0, rank * share.rows_each, num_rows)
  share.num_rows = between(0, num_rows - share.begin, share.rows_each)
  share.num_samples = between(0, num_samples - share.begin, share.num_rows)
  return share
end

return shares
