import "fp8"
import "quantise"
import "weights"
import "norm"
import "norm_concat"
import "rope"
import "linear"
import "attention"
import "route"
import "experts"
import "controls"
import "counts"
import "sampling"
import "rows"
import "cache"
import "random_weights"

module product_fp8 = linear fp8_weights
module product_bf16 = linear bf16_weights
module product_f32 = linear f32_weights
module mixture_fp8 = experts fp8_weights
module mixture_bf16 = experts bf16_weights
module mixture_f32 = experts f32_weights

entry random_fp8 (seed: u64) (is_table: bool) (rows: i64) (columns: i64) : []u8 =
  weights 0 is_table rows columns (\row column -> fp8_code (bits_at seed row column))

entry random_bf16 (seed: u64) (deviation: f32) (is_table: bool) (rows: i64) (columns: i64) : []u16 =
  weights 0 is_table rows columns (\row column -> bf16_bits deviation (bits_at seed row column))

entry random_f32 (seed: u64) (deviation: f32) (is_table: bool) (rows: i64) (columns: i64) : []f32 =
  weights 0 is_table rows columns (\row column -> uniform deviation (bits_at seed row column))

entry rope_tables (theta: f64) (rotary_dim: i64) (num_positions: i64) =
  rope_table theta rotary_dim num_positions

entry embed_bf16 [tokens] [vocab] [hidden]
                 (token_ids: [tokens]i32)
                 (table: [vocab][hidden]u16) : [tokens][hidden]f32 =
  map (\token -> #[unsafe] #[sequential] map bf16_weights.decode table[i64.i32 token]) token_ids

entry embed_f32 [tokens] [vocab] [hidden]
                (token_ids: [tokens]i32)
                (table: [vocab][hidden]f32) : [tokens][hidden]f32 =
  map (\token -> #[unsafe] copy table[i64.i32 token]) token_ids

entry embed_norm_concat_bf16 [tokens] [vocab] [hidden]
                             (epsilon: f32)
                             (token_ids: [tokens]i32)
                             (positions: [tokens]i32)
                             (table: [vocab][hidden]u16)
                             (embedding_norm: [hidden]f32)
                             (rows: [tokens][hidden]f32)
                             (rows_norm: [hidden]f32) : [tokens][hidden + hidden]f32 =
  let embedding token = #[unsafe] #[sequential] map bf16_weights.decode table[i64.i32 token]
  in map3 (norm_concat_row vocab epsilon embedding_norm rows_norm embedding) token_ids positions rows

entry embed_norm_concat_f32 [tokens] [vocab] [hidden]
                            (epsilon: f32)
                            (token_ids: [tokens]i32)
                            (positions: [tokens]i32)
                            (table: [vocab][hidden]f32)
                            (embedding_norm: [hidden]f32)
                            (rows: [tokens][hidden]f32)
                            (rows_norm: [hidden]f32) : [tokens][hidden + hidden]f32 =
  let embedding token = #[unsafe] copy table[i64.i32 token]
  in map3 (norm_concat_row vocab epsilon embedding_norm rows_norm embedding) token_ids positions rows

entry quantise [tokens] [width] (input: [tokens][width]f32) : ([tokens][width]u8, [tokens]f32) =
  unzip (map quantise_row input)

entry swiglu [tokens] [double] (width: i64) (gate_up: [tokens][double]f32) : [tokens][width]f32 =
  map (swiglu_row width) gate_up

entry swiglu_quantise [tokens] [double]
                      (width: i64)
                      (gate_up: [tokens][double]f32) : ([tokens][width]u8, [tokens]f32) =
  unzip (map (\row -> quantise_row (swiglu_row width row)) gate_up)

entry norm [tokens] [hidden]
           (epsilon: f32)
           (weight: [hidden]f32)
           (residual: [tokens][hidden]f32) : [tokens][hidden]f32 =
  map (norm_row epsilon weight) residual

entry norm_quantise [tokens] [hidden]
                    (epsilon: f32)
                    (weight: [hidden]f32)
                    (residual: [tokens][hidden]f32) : ([tokens][hidden]u8, [tokens]f32) =
  unzip (map (\row -> quantise_row (norm_row epsilon weight row)) residual)

entry add_norm [tokens] [hidden]
               (epsilon: f32)
               (weight: [hidden]f32)
               (residual: [tokens][hidden]f32)
               (delta: [tokens][hidden]f32) : ([tokens][hidden]f32, [tokens][hidden]f32) =
  unzip (map2 (\a b ->
                 let row = #[sequential] map2 (+) a b
                 in (row, norm_row epsilon weight row))
              residual
              delta)

entry add_norm_quantise [tokens] [hidden]
                        (epsilon: f32)
                        (weight: [hidden]f32)
                        (residual: [tokens][hidden]f32)
                        (delta: [tokens][hidden]f32) : ([tokens][hidden]f32, [tokens][hidden]u8, [tokens]f32) =
  unzip3 (map2 (\a b ->
                  let row = #[sequential] map2 (+) a b
                  let (codes, scale) = quantise_row (norm_row epsilon weight row)
                  in (row, codes, scale))
               residual
               delta)

entry linear_fp8 [rows] [depth] [panels] [size] [columns] [biases]
                 (codes: [rows][depth]u8)
                 (row_scale: [rows]f32)
                 (weights: [panels][size]u8)
                 (scale: [columns]f32)
                 (bias: [biases]f32) : [rows][columns]f32 =
  let input = map (\row -> #[sequential] map fp8_weights.decode row) codes
  in outputs rows columns (product_fp8.products input weights) row_scale scale bias

entry linear_bf16 [rows] [depth] [panels] [size] [biases]
                  (columns: i64)
                  (input: [rows][depth]f32)
                  (weights: [panels][size]u16)
                  (bias: [biases]f32) : [rows][columns]f32 =
  outputs rows columns (product_bf16.products input weights) [] [] bias

entry linear_f32 [rows] [depth] [panels] [size] [biases]
                 (columns: i64)
                 (input: [rows][depth]f32)
                 (weights: [panels][size]f32)
                 (bias: [biases]f32) : [rows][columns]f32 =
  outputs rows columns (product_f32.products input weights) [] [] bias

entry select_rows [selected] [rows] [width]
                  (row_index: [selected]i32)
                  (input: [rows][width]f32) : [selected][width]f32 =
  map (\row -> #[unsafe] copy input[i64.i32 row]) row_index

entry route [rows] [experts]
            (num_shared: i64)
            (top_k: i64)
            (normalise: bool)
            (factor: f32)
            (bias: [experts]f32)
            (logits: [rows][experts]f32) : ([rows][num_shared + top_k]i32, [rows][num_shared + top_k]f32) =
  let (ids, weights) = unzip (map (route_row top_k normalise factor bias) logits)
  let shared_ids = tabulate num_shared (\shared -> i32.i64 (experts + shared))
  in ( map (\row -> #[sequential] shared_ids ++ row) ids
     , map (\row -> #[sequential] replicate num_shared 1 ++ row) weights
     )

entry experts_fp8 [tokens]
                  [hidden]
                  [top_k]
                  [gate_up_size]
                  [gate_up_scales]
                  [down_size]
                  [down_scales]
                  [initial_rows]
                  (begin: i64)
                  (experts: i64)
                  (width: i64)
                  (codes: [tokens][hidden]u8)
                  (row_scale: [tokens]f32)
                  (expert_ids: [tokens][top_k]i32)
                  (expert_weights: [tokens][top_k]f32)
                  (gate_up: [gate_up_size]u8)
                  (gate_up_stride: i64)
                  (gate_up_scale: [gate_up_scales]f32)
                  (gate_up_scale_stride: i64)
                  (down: [down_size]u8)
                  (down_stride: i64)
                  (down_scale: [down_scales]f32)
                  (down_scale_stride: i64)
                  (initial: [initial_rows][hidden]f32) : [tokens][hidden]f32 =
  let values t = #[unsafe] #[sequential] map fp8_weights.decode codes[t]
  let scale t = #[unsafe] row_scale[t]
  in mixture_fp8.run true
                     experts
                     width
                     values
                     scale
                     (local_ids begin expert_ids)
                     expert_weights
                     (stack (2 * width) gate_up gate_up_stride gate_up_scale gate_up_scale_stride)
                     (stack hidden down down_stride down_scale down_scale_stride)
                     initial

entry experts_bf16 [tokens] [hidden] [top_k] [gate_up_size] [down_size] [initial_rows]
                   (begin: i64)
                   (experts: i64)
                   (width: i64)
                   (input: [tokens][hidden]f32)
                   (expert_ids: [tokens][top_k]i32)
                   (expert_weights: [tokens][top_k]f32)
                   (gate_up: [gate_up_size]u16)
                   (gate_up_stride: i64)
                   (down: [down_size]u16)
                   (down_stride: i64)
                   (initial: [initial_rows][hidden]f32) : [tokens][hidden]f32 =
  let values t = #[unsafe] copy input[t]
  let scale _ = 1
  in mixture_bf16.run false
                      experts
                      width
                      values
                      scale
                      (local_ids begin expert_ids)
                      expert_weights
                      (stack (2 * width) gate_up gate_up_stride [] 0)
                      (stack hidden down down_stride [] 0)
                      initial

entry experts_f32 [tokens] [hidden] [top_k] [gate_up_size] [down_size] [initial_rows]
                  (begin: i64)
                  (experts: i64)
                  (width: i64)
                  (input: [tokens][hidden]f32)
                  (expert_ids: [tokens][top_k]i32)
                  (expert_weights: [tokens][top_k]f32)
                  (gate_up: [gate_up_size]f32)
                  (gate_up_stride: i64)
                  (down: [down_size]f32)
                  (down_stride: i64)
                  (initial: [initial_rows][hidden]f32) : [tokens][hidden]f32 =
  let values t = #[unsafe] copy input[t]
  let scale _ = 1
  in mixture_f32.run false
                     experts
                     width
                     values
                     scale
                     (local_ids begin expert_ids)
                     expert_weights
                     (stack (2 * width) gate_up gate_up_stride [] 0)
                     (stack hidden down down_stride [] 0)
                     initial

entry norm_rope_store_fp8 [tokens]
                          [width]
                          [query_weights]
                          [key_weights]
                          [positions]
                          [half]
                          [cache_size]
                          [keys]
                          [values]
                          (num_heads: i64)
                          (num_kv_heads: i64)
                          (head_dim: i64)
                          (num_layers: i64)
                          (page_size: i64)
                          (layer: i64)
                          (epsilon: f32)
                          (query_norm: [query_weights]f32)
                          (key_norm: [key_weights]f32)
                          (key_scale: [keys]f32)
                          (value_scale: [values]f32)
                          (cosine: [positions][half]f32)
                          (sine: [positions][half]f32)
                          (position: [tokens]i32)
                          (slot: [tokens]i32)
                          (qkv: [tokens][width]f32)
                          (cache: *[cache_size]u8) : ([tokens][num_heads * head_dim]f32, *[cache_size]u8) =
  let codec = e4m3 (layer * num_kv_heads) key_scale value_scale
  in norm_rope_store codec
                     num_heads
                     num_kv_heads
                     head_dim
                     num_layers
                     page_size
                     layer
                     epsilon
                     query_norm
                     key_norm
                     cosine
                     sine
                     position
                     slot
                     qkv
                     cache

entry norm_rope_store [tokens]
                      [width]
                      [query_weights]
                      [key_weights]
                      [positions]
                      [half]
                      [cache_size]
                      (num_heads: i64)
                      (num_kv_heads: i64)
                      (head_dim: i64)
                      (num_layers: i64)
                      (page_size: i64)
                      (layer: i64)
                      (epsilon: f32)
                      (query_norm: [query_weights]f32)
                      (key_norm: [key_weights]f32)
                      (cosine: [positions][half]f32)
                      (sine: [positions][half]f32)
                      (position: [tokens]i32)
                      (slot: [tokens]i32)
                      (qkv: [tokens][width]f32)
                      (cache: *[cache_size]f32) : ([tokens][num_heads * head_dim]f32, *[cache_size]f32) =
  norm_rope_store float32
                  num_heads
                  num_kv_heads
                  head_dim
                  num_layers
                  page_size
                  layer
                  epsilon
                  query_norm
                  key_norm
                  cosine
                  sine
                  position
                  slot
                  qkv
                  cache

entry attention_fp8 [tokens]
                    [pages]
                    [layers]
                    [num_kv_heads]
                    [size]
                    [bounds]
                    [segments]
                    [table_rows]
                    [table_columns]
                    [keys]
                    [values]
                    (num_heads: i64)
                    (page_size: i64)
                    (head_dim: i64)
                    (scale: f32)
                    (cache: [pages][layers][num_kv_heads][2][size]u8)
                    (layer: i64)
                    (key_scale: [keys]f32)
                    (value_scale: [values]f32)
                    (query_begin: [bounds]i32)
                    (context_length: [segments]i32)
                    (table_row: [segments]i32)
                    (page_table: [table_rows][table_columns]i32)
                    (query: [tokens][num_heads * head_dim]f32) : [tokens][num_heads * head_dim]f32 =
  let table = {query_begin, context_length, table_row, page_table}
  let codec = e4m3 (layer * num_kv_heads) key_scale value_scale
  in attention codec num_heads page_size head_dim scale cache layer table query

entry attention [tokens]
                [pages]
                [layers]
                [num_kv_heads]
                [size]
                [bounds]
                [segments]
                [table_rows]
                [table_columns]
                (num_heads: i64)
                (page_size: i64)
                (head_dim: i64)
                (scale: f32)
                (cache: [pages][layers][num_kv_heads][2][size]f32)
                (layer: i64)
                (query_begin: [bounds]i32)
                (context_length: [segments]i32)
                (table_row: [segments]i32)
                (page_table: [table_rows][table_columns]i32)
                (query: [tokens][num_heads * head_dim]f32) : [tokens][num_heads * head_dim]f32 =
  let table = {query_begin, context_length, table_row, page_table}
  in attention float32 num_heads page_size head_dim scale cache layer table query

entry count_tokens [vocab] [tokens]
                   (reset: bool)
                   (from_prompt: bool)
                   (token_ids: [tokens]i32)
                   (counts: *[vocab]u32) : *[vocab]u32 =
  count_tokens reset from_prompt token_ids counts

entry sample [rows] [vocab] [ids] [count_rows] [counted] [mask_rows] [words] [biases]
             (num_best: i64)
             (logits: [rows][vocab]f32)
             (temperature: [rows]f32)
             (top_p: [rows]f32)
             (min_p: [rows]f32)
             (top_k: [rows]i32)
             (repetition: [rows]f32)
             (frequency: [rows]f32)
             (presence: [rows]f32)
             (seed: [rows]u64)
             (position: [rows]i32)
             (row_offset: [rows]i32)
             (num_earlier: i64)
             (input_ids: [ids]i32)
             (count_row: [rows]i32)
             (mask_row: [rows]i32)
             (num_logprobs: [rows]i32)
             (forced_token: [rows]i32)
             (bias_begin: [rows]i32)
             (bias_end: [rows]i32)
             (bias_tokens: [biases]i32)
             (bias_values: [biases]f32)
             (masks: [mask_rows][words]u32)
             (counts: [count_rows][counted]u32) : ([rows]i32, [rows]i32, [rows]f32, [rows][num_best]i32, [rows][num_best]f32) =
  let controls r =
    #[unsafe]
    { temperature = temperature[r]
    , top_p = top_p[r]
    , min_p = min_p[r]
    , top_k = top_k[r]
    , repetition = repetition[r]
    , frequency = frequency[r]
    , presence = presence[r]
    , seed = seed[r]
    , position = position[r]
    }
  let row r =
    #[unsafe]
    let begin = i64.i32 bias_begin[r]
    let end = i64.i32 bias_end[r]
    let after_drafts = num_earlier + r + 1
    let first_draft = after_drafts - i64.i32 row_offset[r]
    in sample_row num_best
                  (controls r)
                  num_logprobs[r]
                  forced_token[r]
                  (row_or_none counts count_row[r])
                  input_ids[first_draft:after_drafts]
                  bias_tokens[begin:end]
                  bias_values[begin:end]
                  (row_or_none masks mask_row[r])
                  logits[r]
  let results = tabulate_rows rows (without_logprobs num_best (-1) 0) row
  in ( map (.token) results
     , map (.is_finite) results
     , map (.logprob) results
     , map (.top_ids) results
     , map (.top_logprobs) results
     )
