import "weights"

def panel_columns : i64 = 64
def tile_depth : i64 = 64
def tile_size : i64 = tile_depth * panel_columns
def block_rows : i64 = 32

type tile = [tile_depth][panel_columns]f32
type block = [block_rows][panel_columns]f32

def num_panels (columns: i64) : i64 = (columns + panel_columns - 1) / panel_columns
def num_blocks (rows: i64) : i64 = (rows + block_rows - 1) / block_rows

#[inline]
def add_eight [rows] [depth] (input: [rows][depth]f32) (row: i64) (base: i64) (i: i64) (weights: tile) (r: i64) (sums: *block) : *block =
  #[unsafe]
  let x0 = input[row, base + i]
  let x1 = input[row, base + i + 1]
  let x2 = input[row, base + i + 2]
  let x3 = input[row, base + i + 3]
  let x4 = input[row, base + i + 4]
  let x5 = input[row, base + i + 5]
  let x6 = input[row, base + i + 6]
  let x7 = input[row, base + i + 7]
  in loop sums for n < panel_columns do
       let sum = sums[r, n] + x0 * weights[i, n]
       let sum = sum + x1 * weights[i + 1, n]
       let sum = sum + x2 * weights[i + 2, n]
       let sum = sum + x3 * weights[i + 3, n]
       let sum = sum + x4 * weights[i + 4, n]
       let sum = sum + x5 * weights[i + 5, n]
       let sum = sum + x6 * weights[i + 6, n]
       let sum = sum + x7 * weights[i + 7, n]
       in sums with [r, n] = sum

#[inline]
def add_one [rows] [depth] (input: [rows][depth]f32) (row: i64) (base: i64) (i: i64) (weights: tile) (r: i64) (sums: *block) : *block =
  #[unsafe]
  let x = input[row, base + i]
  in loop sums for n < panel_columns do
       sums with [r, n] = sums[r, n] + x * weights[i, n]

#[inline]
def add_tile [rows] [depth] (input: [rows][depth]f32) (first_row: i64) (count: i64) (base: i64) (length: i64) (weights: tile) (sums: *block) : *block =
  loop sums for r < count do
    let row = first_row + r
    let eights = length / 8
    let sums =
      loop sums for e < eights do
        add_eight input row base (e * 8) weights r sums
    in loop sums for i in eights * 8..<length do
         add_one input row base i weights r sums

module linear (W: weight_type) = {
  #[inline]
  def full_tile [size] (panel: [size]W.stored) (begin: i64) : tile =
    #[unsafe]
    let part = panel[begin * panel_columns:begin * panel_columns + tile_size] :> [tile_depth * panel_columns]W.stored
    in unflatten (#[sequential] map W.decode part)

  #[inline]
  def last_tile [size] (panel: [size]W.stored) (begin: i64) : tile =
    #[unsafe]
    let part = panel[begin * panel_columns:]
    let length = size - begin * panel_columns
    in unflatten (#[sequential] tabulate (tile_depth * panel_columns) (\i -> if i < length then W.decode part[i] else 0))

  #[inline]
  def block_product [rows] [depth] [size] (input: [rows][depth]f32) (first_row: i64) (count: i64) (panel: [size]W.stored) : *block =
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
  def products [rows] [depth] [panels] [size] (input: [rows][depth]f32) (weights: [panels][size]W.stored) =
    let blocks = num_blocks rows
    let task t =
      #[unsafe]
      let first_row = t % blocks * block_rows
      let count = i64.min block_rows (rows - first_row)
      in block_product input first_row count weights[t / blocks]
    in tabulate (blocks * panels) task
}

#[inline]
def scaled_row [tasks] [columns] [scales] [biases] (products: [tasks]block) (task: i64 -> i64) (r: i64) (input_scale: f32) (scale: [scales]f32) (bias: [biases]f32) : *[columns]f32 =
  #[unsafe]
  let panels = num_panels columns
  let row = replicate panels (replicate panel_columns 0f32)
  let row =
    loop row for p < panels do
      let begin = p * panel_columns
      let count = i64.min panel_columns (columns - begin)
      let t = task p
      let row =
        if scales == 0
        then loop row for n < count do
               row with [p, n] = products[t, r, n]
        else let part = scale[begin:begin + count]
             in loop row for n < count do
                  row with [p, n] = products[t, r, n] * (input_scale * part[n])
      in if biases == 0
         then row
         else let part = bias[begin:begin + count]
              in loop row for n < count do
                   row with [p, n] = row[p, n] + part[n]
  in copy (take columns (flatten row))

#[inline]
def outputs [tasks] [input_scales] [scales] [biases] (rows: i64) (columns: i64) (products: [tasks]block) (input_scale: [input_scales]f32) (scale: [scales]f32) (bias: [biases]f32) : [rows][columns]f32 =
  let blocks = num_blocks rows
  let output i =
    #[unsafe]
    let task panel = panel * blocks + i / block_rows
    let row_scale = if input_scales == 0 then 1 else input_scale[i]
    in scaled_row products task (i % block_rows) row_scale scale bias
  in tabulate rows output
