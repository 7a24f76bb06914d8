import "fp8"
import "exponential"
import "quantise"
import "weights"
import "linear"

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

def swiglu_row [double] (width: i64) (gate_up: [double]f32) : [width]f32 =
  #[unsafe]
  let gate = gate_up[0:width]
  let up = gate_up[width:2 * width] :> [width]f32
  in map2 (\g u -> silu g * u) gate up

module experts (W: weight_type) = {
  module product = linear W

  #[inline]
  def scaled_products [pairs] [depth] [weights] [scales]
                      (input: [pairs][depth]f32)
                      (input_scale: [pairs]f32)
                      (expert_of: [pairs]i64)
                      (matrices: stacked W.stored [weights] [scales])
                      (columns: i64) : [pairs][columns]f32 =
    #[unsafe]
    let begin pair = expert_of[pair] * matrices.stride
    let products = product.products_at input columns matrices.data begin
    let scaled pair column =
      if scales == 0
      then products[pair, column]
      else products[pair, column]
           * (input_scale[pair] * matrices.scale[expert_of[pair] * matrices.scale_stride + column])
    in tabulate_2d pairs columns scaled

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
    let pairs = tokens * top_k
    let is_local expert = 0 <= expert && expert < experts
    let expert_of_pair =
      map (\expert -> if is_local expert then expert else 0) (flatten expert_of) :> [pairs]i64
    let input = tabulate pairs (\pair -> values (pair / top_k))
    let scale = tabulate pairs (\pair -> input_scale (pair / top_k))
    let inner = scaled_products input scale expert_of_pair gate_up (2 * width)
    let active = map (swiglu_row width) inner
    let (hidden_rows, hidden_scale) =
      if quantised
      then unzip (map quantised_values active)
      else (active, replicate pairs 1)
    let outer = scaled_products hidden_rows hidden_scale expert_of_pair down hidden
    let combine token column =
      let start = if initial_rows == 0 then 0 else initial[token, column]
      in loop sum = start
         for j < top_k do
           if is_local expert_of[token, j]
           then sum + weight[token, j] * outer[token * top_k + j, column]
           else sum
    in tabulate_2d tokens hidden combine
}
