def log2_e : f32 = 1.44269504
def ln2_high : f32 = 0.693359375
def ln2_low : f32 = -2.12194440e-4
def rounding_anchor : f32 = 12582912
def smallest_argument : f32 = -86.6
def largest_argument : f32 = 88.72284

#[inline]
def exponential (x: f32) : f32 =
  let anchored = x * log2_e + rounding_anchor
  let n = anchored - rounding_anchor
  let r = x - n * ln2_high - n * ln2_low
  let p = 1.9875691500e-4f32
  let p = p * r + 1.3981999507e-3
  let p = p * r + 8.3334519073e-3
  let p = p * r + 4.1665795894e-2
  let p = p * r + 1.6666665459e-1
  let p = p * r + 5.0000001201e-1
  let power = p * (r * r) + r + 1
  let half_scale = f32.from_bits ((f32.to_bits anchored << 23) + (126 << 23))
  let value = power * half_scale * 2
  in if x < smallest_argument
     then 0
     else if x > largest_argument
     then f32.inf
     else value

#[inline]
def sigmoid (x: f32) : f32 = 1 / (1 + exponential (-x))

#[inline]
def silu (x: f32) : f32 = x / (1 + exponential (-x))
