#[inline]
def tabulate_rows 'value (rows: i64) (_zero: value) (row: i64 -> value) : [rows]value =
  tabulate rows row
