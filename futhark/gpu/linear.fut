import "panels"
import "weights"

def part_depth : i64 = 128
def most_split_rows : i64 = 64

def num_parts (depth: i64) : i64 = (depth + part_depth - 1) / part_depth

module linear (W: weight_type) = {
  #[inline]
  def part_of_product [depth] [size]
                      (input: [depth]f32)
                      (part: i64)
                      (weights: [size]W.stored)
                      (begin: i64)
                      (column: i64) : f32 =
    #[unsafe]
    let first = part * part_depth
    let panel = begin + column / panel_columns * (depth * panel_columns) + column % panel_columns
    in loop sum = 0f32
       for k in first..<i64.min depth (first + part_depth) do
         sum + input[k] * W.decode weights[panel + k * panel_columns]

  #[inline]
  def products_at [rows] [depth] [size]
                  (input: [rows][depth]f32)
                  (columns: i64)
                  (weights: [size]W.stored)
                  (begin: i64 -> i64) : [rows][columns]f32 =
    #[unsafe]
    let parts = num_parts depth
    let part_sum row part column = part_of_product input[row] part weights (begin row) column
    in if rows <= most_split_rows
       then let sums = tabulate_3d parts rows columns (\part row column -> part_sum row part column)
            let total row column = loop sum = 0f32 for part < parts do sum + sums[part, row, column]
            in tabulate_2d rows columns total
       else let total row column = loop sum = 0f32 for part < parts do sum + part_sum row part column
            in tabulate_2d rows columns total

  #[inline]
  def products [rows] [depth] [panels] [size]
               (input: [rows][depth]f32)
               (weights: [panels][size]W.stored) : [rows][panels * panel_columns]f32 =
    products_at input (panels * panel_columns) (flatten weights) (const 0)
}

#[inline]
def outputs [padded] [input_scales] [scales] [biases]
            (rows: i64)
            (columns: i64)
            (products: [rows][padded]f32)
            (input_scale: [input_scales]f32)
            (scale: [scales]f32)
            (bias: [biases]f32) : [rows][columns]f32 =
  let output row column =
    #[unsafe]
    let row_scale = if input_scales == 0 then 1 else input_scale[row]
    let factor = if scales == 0 then 1 else row_scale * scale[column]
    let start = if biases == 0 then 0 else bias[column]
    in start + products[row, column] * factor
  in tabulate_2d rows columns output
