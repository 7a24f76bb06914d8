#[inline]
def largest_magnitude [width] (row: [width]f32) : f32 =
  let bits = map (\value -> i32.u32 (f32.to_bits value & 0x7fffffff)) row
  in f32.from_bits (u32.i32 (reduce i32.max 0 bits))
