import "exponential"
import "sums"

#[inline]
def is_finite_row [vocab] (logits: [vocab]f32) : bool =
  let worst =
    loop worst = 0i32
    for logit in logits do
      i32.max worst (i32.u32 (f32.to_bits logit & 0x7fffffff))
  in worst < 0x7f800000

#[inline]
def greatest [vocab] (row: [vocab]f32) : (i64, f32) =
  #[unsafe]
  loop (best, value) = (-1i64, -f32.inf)
  for token < vocab do
    if row[token] > value then (token, row[token]) else (best, value)

#[inline]
def log_sum_exp [vocab] (row: [vocab]f32) (largest: f32) : f64 =
  #[unsafe]
  let sum = sum_of (\token -> f64.f32 (exponential (row[token] - largest))) vocab
  in f64.f32 largest + f64.log sum

#[inline]
def insert_best [wanted]
                (token: i64)
                (value: f32)
                (ids: *[wanted]i32)
                (values: *[wanted]f32) : (*[wanted]i32, *[wanted]f32) =
  #[unsafe]
  let (ids, values, at) =
    loop (ids, values, at) = (ids, values, wanted - 1)
    while at > 0 && values[at - 1] < value do
      let id = ids[at - 1]
      let other = values[at - 1]
      in (ids with [at] = id, values with [at] = other, at - 1)
  in (ids with [at] = i32.i64 token, values with [at] = value)

#[inline]
def best_tokens [vocab]
                (capacity: i64)
                (wanted: i64)
                (row: [vocab]f32) : (*[capacity]i32, *[capacity]f32) =
  #[unsafe]
  let ids = replicate capacity (-1i32)
  let values = replicate capacity (-f32.inf)
  in if wanted == 0
     then (ids, values)
     else loop (ids, values) for token < vocab do
            if row[token] > values[wanted - 1]
            then let (ids, values) = insert_best token row[token] ids values
                 in (ids, values)
            else (ids, values)
