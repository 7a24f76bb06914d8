#[inline]
def sum_of (term: i64 -> f64) (count: i64) : f64 =
  loop sum = 0f64 for at < count do sum + term at
