import "fp8"
import "exponential"
import "quantise"
import "weights"
import "linear"
import "panels"

type assignments [experts] [pairs] =
  { begin: [experts]i64
  , count: [experts]i64
  , pair_at: [pairs]i64
  , place: [pairs]i64
  }

def is_local (experts: i64) (expert: i64) : bool = 0 <= expert && expert < experts

def assign [pairs] (experts: i64) (expert_of: [pairs]i64) : assignments [experts] [pairs] =
  #[unsafe]
  let count =
    loop count = replicate experts 0i64
    for pair < pairs do
      let expert = expert_of[pair]
      in if is_local experts expert then count with [expert] = count[expert] + 1 else count
  let (begin, _) =
    loop (begin, sum) = (replicate experts 0i64, 0)
    for expert < experts do
      (begin with [expert] = sum, sum + count[expert])
  let (pair_at, place, _) =
    loop (pair_at, place, next) = (replicate pairs (-1i64), replicate pairs (-1i64), copy begin)
    for pair < pairs do
      let expert = expert_of[pair]
      in if is_local experts expert
         then let at = next[expert]
              in ( pair_at with [at] = pair
                 , place with [pair] = at
                 , next with [expert] = at + 1
                 )
         else (pair_at, place, next)
  in {begin, count, pair_at, place}

type block_list [experts] [blocks] =
  { first_block: [experts]i64
  , expert: [blocks]i64
  , first_row: [blocks]i64
  , count: [blocks]i64
  }

def block_list [experts] [pairs]
               (a: assignments [experts] [pairs]) : ?[blocks].block_list [experts] [blocks] =
  #[unsafe]
  let (first_block, blocks) =
    loop (first_block, sum) = (replicate experts 0i64, 0)
    for e < experts do
      (first_block with [e] = sum, sum + num_blocks a.count[e])
  let (expert, first_row, count) =
    loop (expert, first_row, count) =
           (replicate blocks 0i64, replicate blocks 0i64, replicate blocks 0i64)
    for e < experts do
      loop (expert, first_row, count) for b < num_blocks a.count[e] do
        ( expert with [first_block[e] + b] = e
        , first_row with [first_block[e] + b] = a.begin[e] + b * block_rows
        , count with [first_block[e] + b] = i64.min block_rows (a.count[e] - b * block_rows)
        )
  in {first_block, expert, first_row, count}

type stacked 't [weights] [scales] =
  { data: [weights]t
  , stride: i64
  , scale: [scales]f32
  , scale_stride: i64
  , columns: i64
  }

def stack 't [weights] [scales]
          (columns: i64)
          (data: [weights]t)
          (stride: i64)
          (scale: [scales]f32)
          (scale_stride: i64) : stacked t [weights] [scales] =
  {data, stride, scale, scale_stride, columns}

def local_ids [tokens] [top_k]
              (begin: i64)
              (expert_ids: [tokens][top_k]i32) : [tokens][top_k]i64 =
  map (map (\id -> i64.i32 id - begin)) expert_ids

#[inline]
def scale_of 't [weights] [scales] (matrices: stacked t [weights] [scales]) (expert: i64) : []f32 =
  #[unsafe]
  let begin = if scales == 0 then 0 else expert * matrices.scale_stride
  let length = if scales == 0 then 0 else matrices.columns
  in matrices.scale[begin:begin + length]

#[inline]
def swiglu_row [double] (width: i64) (gate_up: [double]f32) : [width]f32 =
  #[unsafe]
  let gate = gate_up[0:width]
  let up = gate_up[width:2 * width] :> [width]f32
  in #[sequential] map2 (\g u -> silu g * u) gate up

module experts (W: weight_type) = {
  module product = linear W

  #[inline]
  def grouped_products [rows] [depth] [experts] [blocks] [weights] [scales]
                       (input: [rows][depth]f32)
                       (list: block_list [experts] [blocks])
                       (matrices: stacked W.stored [weights] [scales]) =
    let panels = num_panels matrices.columns
    let size = depth * panel_columns
    let task t =
      #[unsafe]
      let b = t % blocks
      let begin = list.expert[b] * matrices.stride + t / blocks * size
      let panel = matrices.data[begin:begin + size]
      in product.block_product input list.first_row[b] list.count[b] panel
    in tabulate (blocks * panels) task

  #[inline]
  def add_expert_row [tasks] [experts] [blocks] [pairs] [weights] [scales] [panels]
                     (products: [tasks]block)
                     (list: block_list [experts] [blocks])
                     (a: assignments [experts] [pairs])
                     (matrices: stacked W.stored [weights] [scales])
                     (expert: i64)
                     (at: i64)
                     (share: f32)
                     (input_scale: f32)
                     (row: *[panels][panel_columns]f32) : *[panels][panel_columns]f32 =
    #[unsafe]
    let offset = at - a.begin[expert]
    let b = list.first_block[expert] + offset / block_rows
    let task panel = panel * blocks + b
    let r = offset % block_rows
    let scale = scale_of matrices expert
    in add_to_row products task r matrices.columns share input_scale scale row

  #[inline]
  def run [tokens]
          [hidden]
          [top_k]
          [gate_up_weights]
          [gate_up_scales]
          [down_weights]
          [down_scales]
          [initial_rows]
          (quantised: bool)
          (experts: i64)
          (width: i64)
          (values: i64 -> [hidden]f32)
          (input_scale: i64 -> f32)
          (expert_of: [tokens][top_k]i64)
          (weight: [tokens][top_k]f32)
          (gate_up: stacked W.stored [gate_up_weights] [gate_up_scales])
          (down: stacked W.stored [down_weights] [down_scales])
          (initial: [initial_rows][hidden]f32) : [tokens][hidden]f32 =
    #[unsafe]
    let pair_expert = flatten expert_of
    let a = assign experts pair_expert
    let list = block_list a
    let rows = loop sum = 0 for count in a.count do sum + count
    let input = tabulate rows (\at -> values (a.pair_at[at] / top_k))
    let inner = grouped_products input list gate_up
    let activate at =
      let pair = a.pair_at[at]
      let scale = input_scale (pair / top_k)
      let expert = pair_expert[pair]
      let both =
        add_expert_row inner list a gate_up expert at 1 scale (start_row (2 * width) [])
      let row = swiglu_row width (finish_row (2 * width) both)
      in if quantised then quantised_values row else (row, 1)
    let (hidden_rows, hidden_scale) = unzip (tabulate rows activate)
    let outer = grouped_products hidden_rows list down
    let combine t =
      let start = if initial_rows == 0 then 0 else hidden
      let row = start_row hidden initial[t, 0:start]
      let row =
        loop row for j < top_k do
          let pair = t * top_k + j
          let expert = pair_expert[pair]
          in if is_local experts expert
             then let at = a.place[pair]
                  in add_expert_row outer list a down expert at weight[t, j] hidden_scale[at] row
             else row
      in finish_row hidden row
    in tabulate tokens combine
}
