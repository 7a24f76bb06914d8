import "fp8"

module type weight_type = {
  type stored
  val decode : stored -> f32
}

module fp8_weights : weight_type with stored = u8 = {
  type stored = u8

  #[inline]
  def decode (code: u8) : f32 = fp8.decode code
}

module bf16_weights : weight_type with stored = u16 = {
  type stored = u16

  #[inline]
  def decode (bits: u16) : f32 = f32.from_bits (u32.u16 bits << 16)
}

module f32_weights : weight_type with stored = f32 = {
  type stored = f32

  #[inline]
  def decode (value: f32) : f32 = value
}
