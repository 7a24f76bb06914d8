def tabulate_rows 'value (rows: i64) (zero: value) (row: i64 -> value) : [rows]value =
  loop values = replicate rows zero for at < rows do values with [at] = row at

#[inline]
def by_one_thread 'value (f: i64 -> value) : value = head (map f (#[opaque] [0]))
