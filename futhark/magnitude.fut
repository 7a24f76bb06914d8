#[inline]
def largest_magnitude [width] (row: [width]f32) : f32 =
  let bits =
    loop largest = 0i32
    for value in row do
      i32.max largest (i32.u32 (f32.to_bits value & 0x7fffffff))
  in f32.from_bits (u32.i32 bits)
