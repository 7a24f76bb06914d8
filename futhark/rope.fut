import "norm"

def rope_table (theta: f64)
               (rotary_dim: i64)
               (num_positions: i64) : ([num_positions][]f32, [num_positions][]f32) =
  let half = rotary_dim / 2
  let angle position j = f64.i64 position * theta ** (-2 * f64.i64 j / f64.i64 rotary_dim)
  let table f =
    tabulate num_positions (\position ->
                              #[sequential] tabulate half (\j -> f32.f64 (f (angle position j))))
  in (table f64.cos, table f64.sin)

#[inline]
def rotate [half] [head_dim]
           (cosine: [half]f32)
           (sine: [half]f32)
           (head: [head_dim]f32) : [head_dim]f32 =
  #[unsafe]
  let low = head[0:half] :> [half]f32
  let high = head[half:2 * half] :> [half]f32
  let turned_low = #[sequential] map4 (\a b c s -> a * c - b * s) low high cosine sine
  let turned_high = #[sequential] map4 (\a b c s -> b * c + a * s) low high cosine sine
  in turned_low ++ turned_high ++ head[2 * half:] :> [head_dim]f32

#[inline]
def norm_head [head_dim] [weights]
              (epsilon: f32)
              (weight: [weights]f32)
              (head: [head_dim]f32) : [head_dim]f32 =
  if weights == 0
  then head
  else norm_row epsilon (weight :> [head_dim]f32) head
