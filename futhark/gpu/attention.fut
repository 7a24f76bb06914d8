import "exponential"
import "cache"

def chunk : i64 = 64
def most_partial_values : i64 = 1 << 26

type segments [bounds] [count] [table_rows] [table_columns] =
  { query_begin: [bounds]i32
  , context_length: [count]i32
  , table_row: [count]i32
  , page_table: [table_rows][table_columns]i32
  }

#[inline]
def segment_of [bounds] (query_begin: [bounds]i32) (token: i64) : i64 =
  #[unsafe]
  let (low, _) =
    loop (low, high) = (0, bounds - 1)
    while high - low > 1 do
      let middle = (low + high) / 2
      in if i64.i32 query_begin[middle] <= token
         then (middle, high)
         else (low, middle)
  in low

#[inline]
def attend [pages] [layers] [num_kv_heads] [size] [table_rows] [table_columns] [tokens] [heads] 'stored
           (codec: codec stored)
           (page_size: i64)
           (head_dim: i64)
           (scale: f32)
           (cache: [pages][layers][num_kv_heads][2][size]stored)
           (layer: i64)
           (page_table: [table_rows][table_columns]i32)
           (table_row: [tokens]i64)
           (context: [tokens]i64)
           (chunks: i64)
           (query: [tokens][heads][head_dim]f32) : [tokens][heads][head_dim]f32 =
  #[unsafe]
  let group = heads / num_kv_heads
  let page_of token position = i64.i32 page_table[table_row[token], position / page_size]
  let score token head position =
    if position >= context[token]
    then -f32.inf
    else let keys = cache[page_of token position, layer, head / group, 0]
         let offset = position % page_size
         let product =
           loop sum = 0f32
           for d < head_dim do
             sum + query[token, head, d] * codec.decode keys[d * page_size + offset]
         in product * (scale * codec.key_scale (head / group))
  let scores =
    tabulate_3d tokens heads (chunks * chunk) score
  let largest_of token head c =
    loop largest = -f32.inf
    for p < chunk do
      f32.max largest scores[token, head, c * chunk + p]
  let largest = tabulate_3d tokens heads chunks largest_of
  let weight token head position =
    if position >= context[token]
    then 0
    else exponential (scores[token, head, position] - largest[token, head, position / chunk])
  let weights = tabulate_3d tokens heads (chunks * chunk) weight
  let total_of token head c = loop total = 0f32 for p < chunk do total + weights[token, head, c * chunk + p]
  let totals = tabulate_3d tokens heads chunks total_of
  let sum_of token head index =
    let c = index / head_dim
    let d = index % head_dim
    let length = i64.min chunk (context[token] - c * chunk)
    in loop sum = 0f32
       for p < length do
         let position = c * chunk + p
         let values = cache[page_of token position, layer, head / group, 1]
         in sum + weights[token, head, position] * codec.decode values[position % page_size * head_dim + d]
  let sums = tabulate_3d tokens heads (chunks * head_dim) sum_of
  let joined token head d =
    let used = (context[token] + chunk - 1) / chunk
    let (_, total, sum) =
      loop (before, total, sum) = (-f32.inf, 0f32, 0f32)
      for c < used do
        let here = largest[token, head, c]
        let after = f32.max before here
        let keep = exponential (before - after)
        let add = exponential (here - after)
        in ( after
           , total * keep + totals[token, head, c] * add
           , sum * keep + sums[token, head, c * head_dim + d] * add
           )
    in if used <= 0 then 0 else sum / total * codec.value_scale (head / group)
  in tabulate_3d tokens heads head_dim joined

def attention [tokens]
              [pages]
              [layers]
              [num_kv_heads]
              [size]
              [bounds]
              [count]
              [table_rows]
              [table_columns]
              'stored
              (codec: codec stored)
              (num_heads: i64)
              (page_size: i64)
              (head_dim: i64)
              (scale: f32)
              (cache: [pages][layers][num_kv_heads][2][size]stored)
              (layer: i64)
              (segments: segments [bounds] [count] [table_rows] [table_columns])
              (query: [tokens][num_heads * head_dim]f32) : [tokens][num_heads * head_dim]f32 =
  #[unsafe]
  let segment token = segment_of segments.query_begin token
  let context_of token =
    let s = segment token
    let behind = i64.i32 segments.query_begin[s + 1] - 1 - token
    in if behind < 0 then 0 else i64.i32 segments.context_length[s] - behind
  let context = tabulate tokens context_of
  let table_row = tabulate tokens (\token -> i64.i32 segments.table_row[segment token])
  let chunks = (i64.maximum context + chunk - 1) / chunk
  let values_each = num_heads * i64.max 1 chunks * (2 * chunk + head_dim)
  let most = i64.max 1 (i64.min tokens (most_partial_values / values_each))
  let heads = unflatten_3d (flatten query :> [tokens * num_heads * head_dim]f32)
  let output = replicate tokens (replicate num_heads (replicate head_dim 0f32))
  let (output, _) =
    loop (output, begin) = (output, 0)
    while begin < tokens do
      let end = i64.min tokens (begin + most)
      let attended =
        attend codec
               page_size
               head_dim
               scale
               cache
               layer
               segments.page_table
               table_row[begin:end]
               context[begin:end]
               chunks
               heads[begin:end]
      in (output with [begin:end] = attended, end)
  in unflatten (flatten_3d output :> [tokens * (num_heads * head_dim)]f32)
