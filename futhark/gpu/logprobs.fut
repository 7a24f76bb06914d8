import "exponential"

def num_ranges : i64 = 512

#[inline]
def range_begin (vocab: i64) (range: i64) : i64 = range * vocab / num_ranges

#[inline]
def greatest [vocab] (row: [vocab]f32) : (i64, f32) =
  #[unsafe]
  let best_of range =
    loop (best, value) = (-1i64, -f32.inf)
    for token in range_begin vocab range..<range_begin vocab (range + 1) do
      if row[token] > value then (token, row[token]) else (best, value)
  let candidates = tabulate num_ranges best_of
  in loop (best, value) = (-1i64, -f32.inf)
     for (token, candidate) in candidates do
       if candidate > value then (token, candidate) else (best, value)

#[inline]
def log_sum_exp [vocab] (row: [vocab]f32) (largest: f32) : f64 =
  #[unsafe]
  let sum_of range =
    loop sum = 0f64
    for token in range_begin vocab range..<range_begin vocab (range + 1) do
      sum + f64.f32 (exponential (row[token] - largest))
  let sums = tabulate num_ranges sum_of
  let sum = loop total = 0f64 for sum in sums do total + sum
  in f64.f32 largest + f64.log sum

def best_tokens [vocab]
                (capacity: i64)
                (wanted: i64)
                (row: [vocab]f32) : (*[capacity]i32, *[capacity]f32) =
  #[unsafe]
  let ids = replicate capacity (-1i32)
  let values = replicate capacity (-f32.inf)
  let (ids, values, _) =
    loop (ids, values, rest) = (ids, values, copy row)
    for at < wanted do
      let (best, value) = greatest rest
      in if best < 0
         then (ids, values, rest)
         else (ids with [at] = i32.i64 best, values with [at] = value, rest with [best] = -f32.inf)
  in (ids, values)
