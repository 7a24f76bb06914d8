import "norm"

def rope_table (theta: f64) (rotary_dim: i64) (num_positions: i64) : ([num_positions][]f32, [num_positions][]f32) =
  let half = rotary_dim / 2
  let angle position j = f64.i64 position * theta ** (-2 * f64.i64 j / f64.i64 rotary_dim)
  let table f =
    tabulate num_positions (\position ->
                              #[sequential] tabulate half (\j -> f32.f64 (f (angle position j))))
  in (table f64.cos, table f64.sin)

#[inline]
def rotate [half] [head_dim] (cosine: [half]f32) (sine: [half]f32) (head: [head_dim]f32) : [head_dim]f32 =
  #[sequential]
  tabulate head_dim (\i ->
                       #[unsafe]
                       if i < half
                       then head[i] * cosine[i] - head[i + half] * sine[i]
                       else if i < 2 * half
                       then head[i] * cosine[i - half] + head[i - half] * sine[i - half]
                       else head[i])

#[inline]
def norm_head [head_dim] [weights] (epsilon: f32) (weight: [weights]f32) (head: [head_dim]f32) : [head_dim]f32 =
  if weights == 0
  then head
  else norm_row epsilon (weight :> [head_dim]f32) head
