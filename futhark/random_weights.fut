import "panels"

def golden : u64 = 0x9E3779B97F4A7C15
def uniform_deviation : f32 = 0.57735027

def mixed (value: u64) : u64 =
  let once = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
  let twice = (once ^ (once >> 27)) * 0x94D049BB133111EB
  in twice ^ (twice >> 31)

def bits_at (seed: u64) (row: i64) (column: i64) : u64 =
  mixed (mixed (seed * golden + 1) ^ ((u64.i64 row << 32 | u64.i64 column) * golden))

def uniform (deviation: f32) (bits: u64) : f32 =
  (f32.u64 (bits >> 40) * 1.1920929e-7 - 1) * deviation / uniform_deviation

def fp8_code (bits: u64) : u8 =
  let sign = if bits & 1 == 1 then 0x80u8 else 0
  in sign | (0x30 + u8.u64 ((bits >> 8) % 16))

def bf16_bits (deviation: f32) (bits: u64) : u16 =
  u16.u32 (f32.to_bits (uniform deviation bits) >> 16)

def in_rows 'element (rows: i64) (columns: i64) (value: i64 -> i64 -> element) : []element =
  tabulate (rows * columns) (\at -> value (at / columns) (at % columns))

def in_panels 'element
              (zero: element)
              (rows: i64)
              (columns: i64)
              (value: i64 -> i64 -> element) : []element =
  tabulate (num_panels rows * columns * panel_columns)
           (\at ->
              let row = at / (columns * panel_columns) * panel_columns + at % panel_columns
              in if row < rows then value row (at / panel_columns % columns) else zero)

def weights 'element
            (zero: element)
            (is_table: bool)
            (rows: i64)
            (columns: i64)
            (value: i64 -> i64 -> element) : []element =
  if is_table then in_rows rows columns value else in_panels zero rows columns value
