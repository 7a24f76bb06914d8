#[inline]
def sum_of_squares [width] (row: [width]f32) : f32 =
  #[unsafe]
  let quarters = width / 4
  let (a, b, c, d) =
    loop (a, b, c, d) = (0f32, 0f32, 0f32, 0f32)
    for i < quarters do
      let w = row[4 * i]
      let x = row[4 * i + 1]
      let y = row[4 * i + 2]
      let z = row[4 * i + 3]
      in (a + w * w, b + x * x, c + y * y, d + z * z)
  in loop sum = (a + b) + (c + d)
     for i in quarters * 4..<width do
       sum + row[i] * row[i]

#[inline]
def inverse_root_mean_square [width] (epsilon: f32) (row: [width]f32) : f32 =
  1 / f32.sqrt (sum_of_squares row / f32.i64 width + epsilon)

#[inline]
def norm_row [width] (epsilon: f32) (weight: [width]f32) (row: [width]f32) : [width]f32 =
  let factor = inverse_root_mean_square epsilon row
  in #[sequential] map2 (\w x -> w * (x * factor)) weight row
