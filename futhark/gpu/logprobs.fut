import "exponential"
import "sums"

#[inline]
def is_finite_row [vocab] (logits: [vocab]f32) : bool =
  i32.maximum (map (\logit -> i32.u32 (f32.to_bits logit & 0x7fffffff)) logits) < 0x7f800000

#[inline]
def better 'value
           ((>): value -> value -> bool)
           ((a, x): (i64, value))
           ((b, y): (i64, value)) : (i64, value) =
  if a < 0
  then (b, y)
  else if b < 0
  then (a, x)
  else if y > x
  then (b, y)
  else if x > y
  then (a, x)
  else (i64.min a b, x)

#[inline]
def greatest [vocab] (row: [vocab]f32) : (i64, f32) =
  let candidate token logit = if logit > -f32.inf then (token, logit) else (-1, -f32.inf)
  in reduce_comm (better (f32.>)) (-1, -f32.inf) (map2 candidate (iota vocab) row)

#[inline]
def log_sum_exp [vocab] (row: [vocab]f32) (largest: f32) : f64 =
  #[unsafe]
  let sum = sum_of (\token -> f64.f32 (exponential (row[token] - largest))) vocab
  in f64.f32 largest + f64.log sum

def best_tokens [vocab]
                (capacity: i64)
                (wanted: i64)
                (row: [vocab]f32) : (*[capacity]i32, *[capacity]f32) =
  #[unsafe]
  let (ids, values, _) =
    loop (ids, values, rest) =
           (replicate capacity (-1i32), replicate capacity (-f32.inf), copy row)
    for at < wanted do
      let (best, value) = greatest rest
      in if best < 0
         then (ids, values, rest)
         else (ids with [at] = i32.i64 best, values with [at] = value, rest with [best] = -f32.inf)
  in (ids, values)
