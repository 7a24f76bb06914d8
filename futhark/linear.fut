import "panels"
import "weights"

def tile_depth : i64 = 32
def tile_size : i64 = tile_depth * panel_columns
def block_rows : i64 = 32
def fewest_interleaved_rows : i64 = 8

type tile = [tile_depth][panel_columns]f32
type block = [block_rows][panel_columns]f32

def num_blocks (rows: i64) : i64 = (rows + block_rows - 1) / block_rows

#[inline]
def add_four [rows] [depth]
             (input: [rows][depth]f32)
             (row: i64)
             (base: i64)
             (i: i64)
             (weights: tile)
             (r: i64)
             (sums: *block) : *block =
  #[unsafe]
  let x0 = input[row, base + i]
  let x1 = input[row, base + i + 1]
  let x2 = input[row, base + i + 2]
  let x3 = input[row, base + i + 3]
  in loop sums for n < panel_columns do
       let sum = sums[r, n] + x0 * weights[i, n]
       let sum = sum + x1 * weights[i + 1, n]
       let sum = sum + x2 * weights[i + 2, n]
       let sum = sum + x3 * weights[i + 3, n]
       in sums with [r, n] = sum

#[inline]
def add_one [rows] [depth]
            (input: [rows][depth]f32)
            (row: i64)
            (base: i64)
            (i: i64)
            (weights: tile)
            (r: i64)
            (sums: *block) : *block =
  #[unsafe]
  let x = input[row, base + i]
  in loop sums for n < panel_columns do
       sums with [r, n] = sums[r, n] + x * weights[i, n]

#[inline]
def add_tile_by_row [rows] [depth]
                    (input: [rows][depth]f32)
                    (first_row: i64)
                    (count: i64)
                    (base: i64)
                    (length: i64)
                    (weights: tile)
                    (sums: *block) : *block =
  loop sums for r < count do
    let row = first_row + r
    let fours = length / 4
    let sums =
      loop sums for f < fours do
        add_four input row base (f * 4) weights r sums
    in loop sums for i in fours * 4..<length do
         add_one input row base i weights r sums

#[inline]
def add_tile_interleaved [rows] [depth]
                         (input: [rows][depth]f32)
                         (first_row: i64)
                         (count: i64)
                         (base: i64)
                         (length: i64)
                         (weights: tile)
                         (sums: *block) : *block =
  let fours = length / 4
  let sums =
    loop sums for f < fours do
      loop sums for r < count do
        add_four input (first_row + r) base (f * 4) weights r sums
  in loop sums for i in fours * 4..<length do
       loop sums for r < count do
         add_one input (first_row + r) base i weights r sums

#[inline]
def add_tile [rows] [depth]
             (input: [rows][depth]f32)
             (first_row: i64)
             (count: i64)
             (base: i64)
             (length: i64)
             (weights: tile)
             (sums: *block) : *block =
  if count < fewest_interleaved_rows
  then add_tile_by_row input first_row count base length weights sums
  else add_tile_interleaved input first_row count base length weights sums

module linear (W: weight_type) = {
  #[inline]
  def full_tile [size] (panel: [size]W.stored) (base: i64) : tile =
    #[unsafe]
    let begin = base * panel_columns
    let part = panel[begin:begin + tile_size] :> [tile_depth * panel_columns]W.stored
    in unflatten (#[sequential] map W.decode part)

  #[inline]
  def last_tile [size] (panel: [size]W.stored) (base: i64) : tile =
    #[unsafe]
    let part = panel[base * panel_columns:]
    let length = size - base * panel_columns
    let weight i = if i < length then W.decode part[i] else 0
    in unflatten (#[sequential] tabulate (tile_depth * panel_columns) weight)

  #[inline]
  def block_product [rows] [depth] [size]
                    (input: [rows][depth]f32)
                    (first_row: i64)
                    (count: i64)
                    (panel: [size]W.stored) : *block =
    let full = depth / tile_depth
    let sums = replicate block_rows (replicate panel_columns 0f32)
    let sums =
      loop sums for t < full do
        let base = t * tile_depth
        in add_tile input first_row count base tile_depth (full_tile panel base) sums
    let base = full * tile_depth
    in if base == depth
       then sums
       else add_tile input first_row count base (depth - base) (last_tile panel base) sums

  #[inline]
  def products [rows] [depth] [panels] [size]
               (input: [rows][depth]f32)
               (weights: [panels][size]W.stored) =
    let blocks = num_blocks rows
    let task t =
      #[unsafe]
      let first_row = t % blocks * block_rows
      let count = i64.min block_rows (rows - first_row)
      in block_product input first_row count weights[t / blocks]
    in tabulate (blocks * panels) task
}

#[inline]
def start_row [length] (columns: i64) (start: [length]f32) : *[][panel_columns]f32 =
  #[unsafe]
  let panels = num_panels columns
  let filled = if length == 0 then 0 else panels
  let row = replicate panels (replicate panel_columns 0f32)
  in loop row for p < filled do
       let begin = p * panel_columns
       let count = i64.min panel_columns (columns - begin)
       let part = start[begin:begin + count]
       in loop row for n < count do
            row with [p, n] = part[n]

#[inline]
def add_to_row [tasks] [panels] [scales]
               (products: [tasks]block)
               (task: i64 -> i64)
               (r: i64)
               (columns: i64)
               (share: f32)
               (input_scale: f32)
               (scale: [scales]f32)
               (row: *[panels][panel_columns]f32) : *[panels][panel_columns]f32 =
  #[unsafe]
  loop row for p < panels do
    let begin = p * panel_columns
    let count = i64.min panel_columns (columns - begin)
    let t = task p
    in if scales == 0
       then loop row for n < count do
              row with [p, n] = row[p, n] + share * products[t, r, n]
       else let part = scale[begin:begin + count]
            in loop row for n < count do
                 row with [p, n] = row[p, n]
                     + share * (products[t, r, n] * (input_scale * part[n]))

#[inline]
def finish_row [panels] (columns: i64) (row: [panels][panel_columns]f32) : [columns]f32 =
  #[unsafe] take columns (flatten row)

#[inline]
def outputs [tasks] [input_scales] [scales] [biases]
            (rows: i64)
            (columns: i64)
            (products: [tasks]block)
            (input_scale: [input_scales]f32)
            (scale: [scales]f32)
            (bias: [biases]f32) : [rows][columns]f32 =
  let blocks = num_blocks rows
  let output i =
    #[unsafe]
    let task panel = panel * blocks + i / block_rows
    let row_scale = if input_scales == 0 then 1 else input_scale[i]
    let row = start_row columns bias
    let row = add_to_row products task (i % block_rows) columns 1 row_scale scale row
    in finish_row columns row
  in tabulate rows output
