import "fp8"
import "magnitude"

def zero_row_scale : f32 = 1.1920928955078125e-7

#[inline]
def row_scale [width] (row: [width]f32) : f32 =
  let scale = largest_magnitude row / fp8.largest
  in if scale == 0 then zero_row_scale else scale

#[inline]
def row_codes [width] (scale: f32) (row: [width]f32) : [width]u8 =
  #[sequential] map (\value -> fp8.encode (value / scale)) row

#[inline]
def quantise_row [width] (row: [width]f32) : ([width]u8, f32) =
  let scale = row_scale row
  in (row_codes scale row, scale)

#[inline]
def quantised_values [width] (row: [width]f32) : ([width]f32, f32) =
  let scale = row_scale row
  let through_code value = fp8.decode (fp8.encode (value / scale))
  in (#[sequential] map through_code row, scale)
