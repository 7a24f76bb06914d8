def digit_values : i64 = 256

#[inline]
def ordered (value: f32) : u32 =
  let bits = f32.to_bits (value + 0)
  in if bits >> 31 == 1 then !bits else bits | 0x80000000

#[inline]
def select_threshold [vocab]
                     (weight: i64 -> f64)
                     (keys: [vocab]u32)
                     (floor: u32)
                     (target: f64) : u32 =
  #[unsafe]
  let (prefix, _, _) =
    loop (prefix, known, above) = (0u32, 0u32, 0f64)
    for digit < 4i64 do
      let shift = u32.i64 (24 - 8 * digit)
      let (mass, filled) =
        loop (mass, filled) = (replicate digit_values 0f64, replicate digit_values false)
        for token < vocab do
          let key = keys[token]
          in if key < floor || (key ^ prefix) & known != 0
             then (mass, filled)
             else let bin = i64.u32 ((key >> shift) & 255)
                  in (mass with [bin] = mass[bin] + weight token, filled with [bin] = true)
      let (chosen, over, _) =
        loop (chosen, over, bin) = (-1i64, above, digit_values - 1)
        while bin >= 0 && (chosen < 0 || over + mass[chosen] < target) do
          if filled[bin]
          then let over = if chosen < 0 then over else over + mass[chosen]
               in (bin, over, bin - 1)
          else (chosen, over, bin - 1)
      let bin = u32.i64 (i64.max chosen 0)
      in (prefix | (bin << shift), known | (255 << shift), over)
  in u32.max prefix floor
