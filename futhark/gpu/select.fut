import "rows"

def digit_values : i64 = 256
def num_ranges : i64 = 512

#[inline]
def ordered (value: f32) : u32 =
  let bits = f32.to_bits (value + 0)
  in if bits >> 31 == 1 then !bits else bits | 0x80000000

#[inline]
def choose (mass: [digit_values]f64)
           (filled: [digit_values]bool)
           (above: f64)
           (target: f64) : (i64, f64) =
  #[unsafe]
  let (chosen, over, _) =
    loop (chosen, over, bin) = (-1i64, above, digit_values - 1)
    while bin >= 0 && (chosen < 0 || over + mass[chosen] < target) do
      if filled[bin]
      then let over = if chosen < 0 then over else over + mass[chosen]
           in (bin, over, bin - 1)
      else (chosen, over, bin - 1)
  in (chosen, over)

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
      let in_range range =
        loop (mass, filled) = (replicate digit_values 0f64, replicate digit_values false)
        for i < (vocab - range + num_ranges - 1) / num_ranges do
          let token = range + i * num_ranges
          let key = keys[token]
          in if key < floor || (key ^ prefix) & known != 0
             then (mass, filled)
             else let bin = i64.u32 ((key >> shift) & 255)
                  in (mass with [bin] = mass[bin] + weight token, filled with [bin] = true)
      let (masses, fillings) = unzip (tabulate num_ranges in_range)
      let mass bin = loop sum = 0f64 for range < num_ranges do sum + masses[range, bin]
      let filled bin = loop any = false for range < num_ranges do any || fillings[range, bin]
      let mass = tabulate digit_values mass
      let filled = tabulate digit_values filled
      let (chosen, over) = by_one_thread (\_ -> choose mass filled above target)
      let bin = u32.i64 (i64.max chosen 0)
      in (prefix | (bin << shift), known | (255 << shift), over)
  in u32.max prefix floor
