def num_partial_sums : i64 = 64

#[inline]
def sum_of_squares [width] (row: [width]f32) : f32 =
  #[unsafe]
  let partial first =
    loop sum = 0f32
    for i < (width - first + num_partial_sums - 1) / num_partial_sums do
      let value = row[first + i * num_partial_sums]
      in sum + value * value
  let partials = tabulate num_partial_sums partial
  in loop sum = 0f32 for partial in partials do sum + partial

#[inline]
def inverse_root_mean_square [width] (epsilon: f32) (row: [width]f32) : f32 =
  1 / f32.sqrt (sum_of_squares row / f32.i64 width + epsilon)

#[inline]
def norm_row [width] (epsilon: f32) (weight: [width]f32) (row: [width]f32) : [width]f32 =
  let factor = inverse_root_mean_square epsilon row
  in map2 (\w x -> w * (x * factor)) weight row
