module fp8 = {
  def largest : f32 = 448
  def nan_code : u32 = 0x7f
  def sign_bit : u32 = 0x80
  def decode_factor : f32 = 1329227995784915872903807060280344576
  def subnormal_anchor : f32 = 16384
  def smallest_normal_bits : u32 = 0x3c800000
  def infinity_bits : u32 = 0x7f800000

  #[inline]
  def decode (code: u8) : f32 =
    let shifted = u32.i32 (i32.i8 (i8.u8 code)) << 20
    let magnitude = shifted & 0x07f00000
    let nan_bits = if magnitude == 0x07f00000 then 0x7fc00000 else 0u32
    in f32.from_bits (shifted & 0x87f00000 | nan_bits) * decode_factor

  #[inline]
  def decode_anchored (code: u8) : f32 =
    let shifted = u32.i32 (i32.i8 (i8.u8 code)) << 20
    let magnitude = shifted & 0x07f00000
    let anchored = f32.from_bits (magnitude | smallest_normal_bits)
    let subnormal = f32.to_bits (anchored - f32.from_bits smallest_normal_bits)
    let normal = magnitude + 0x3c000000
    let finite = if magnitude < 0x00800000 then subnormal else normal
    let nan_bits = if magnitude == 0x07f00000 then 0x7fc00000 else 0u32
    in f32.from_bits (shifted & 0x80000000 | finite | nan_bits)

  #[inline]
  def encode (value: f32) : u8 =
    let bits = f32.to_bits value
    let sign = (bits >> 24) & sign_bit
    let unlimited = bits & 0x7fffffff
    let limit = f32.to_bits largest
    let magnitude = if unlimited > limit then limit else unlimited
    let normal = ((magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20) - 960
    let anchored = f32.to_bits (f32.from_bits magnitude + subnormal_anchor)
    let subnormal = anchored - f32.to_bits subnormal_anchor
    let finite = if magnitude < smallest_normal_bits then subnormal else normal
    let code = if unlimited > infinity_bits then nan_code else finite
    in u8.u32 (sign | code)
}
