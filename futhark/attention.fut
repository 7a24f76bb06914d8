#[inline]
def segment_of [bounds] (query_begin: [bounds]i32) (token: i64) : i64 =
  #[unsafe]
  let (low, _) =
    loop (low, high) = (0, bounds - 1)
    while high - low > 1 do
      let middle = (low + high) / 2
      in if i64.i32 query_begin[middle] <= token then (middle, high) else (low, middle)
  in low

#[inline]
def add_scores [page_size] [key_size] (factor: f32) (key: [key_size]f32) (begin: i64) (scores: *[page_size]f32) : *[page_size]f32 =
  #[unsafe]
  let part = key[begin * page_size:(begin + 1) * page_size]
  in loop scores for p < page_size do
       scores with [p] = scores[p] + factor * part[p]

#[inline]
def add_four_scores [page_size] [key_size] [head_dim] (query: [head_dim]f32) (key: [key_size]f32) (begin: i64) (scores: *[page_size]f32) : *[page_size]f32 =
  #[unsafe]
  let part = unflatten (key[begin * page_size:(begin + 4) * page_size] :> [4 * page_size]f32)
  let a = query[begin]
  let b = query[begin + 1]
  let c = query[begin + 2]
  let d = query[begin + 3]
  in loop scores for p < page_size do
       scores with [p] = scores[p] + a * part[0, p] + b * part[1, p] + c * part[2, p] + d * part[3, p]

#[inline]
def page_scores [head_dim] [key_size] (page_size: i64) (scale: f32) (count: i64) (query: [head_dim]f32) (key: [key_size]f32) : *[page_size]f32 =
  #[unsafe]
  let fours = head_dim / 4
  let scores = replicate page_size 0
  let scores = loop scores for i < fours do add_four_scores query key (4 * i) scores
  let scores = loop scores for i in fours * 4..<head_dim do add_scores query[i] key i scores
  in loop scores for p < page_size do
       scores with [p] = if p < count then scores[p] * scale else -f32.inf

#[inline]
def add_values [head_dim] [page_size] [value_size] (count: i64) (weights: [page_size]f32) (value: [value_size]f32) (sums: *[head_dim]f32) : *[head_dim]f32 =
  #[unsafe]
  loop sums for p < count do
    let weight = weights[p]
    let part = value[p * head_dim:(p + 1) * head_dim]
    in loop sums for d < head_dim do
         sums with [d] = sums[d] + weight * part[d]

#[inline]
def add_page [head_dim] [key_size] [value_size] (page_size: i64) (scale: f32) (count: i64) (query: [head_dim]f32) (key: [key_size]f32) (value: [value_size]f32) (largest: f32) (total: f32) (sums: *[head_dim]f32) : (f32, f32, *[head_dim]f32) =
  #[unsafe]
  let scores = page_scores page_size scale count query key
  let new_largest = loop most = largest for score in scores do if score > most then score else most
  let correction = f32.exp (largest - new_largest)
  let weights = loop scores for p < page_size do scores with [p] = f32.exp (scores[p] - new_largest)
  let sum = loop sum = 0 for p < count do sum + weights[p]
  let sums = loop sums for d < head_dim do sums with [d] = sums[d] * correction
  in (new_largest, total * correction + sum, add_values count weights value sums)

#[inline]
def attend [pages] [layers] [num_kv_heads] [size] [table_columns] (page_size: i64) (head_dim: i64) (scale: f32) (cache: [pages][layers][num_kv_heads][2][size]f32) (layer: i64) (kv_head: i64) (table: [table_columns]i32) (context: i64) (query: [head_dim]f32) : [head_dim]f32 =
  #[unsafe]
  let num_context_pages = (context + page_size - 1) / page_size
  let (_, total, sums) =
    loop (largest, total, sums) = (-f32.inf, 0, replicate head_dim 0)
    for i < num_context_pages do
      let page = cache[i64.i32 table[i], layer, kv_head]
      let count = i64.min page_size (context - i * page_size)
      in add_page page_size scale count query page[0] page[1] largest total sums
  in #[sequential] map (/ total) sums

def attention [tokens] [pages] [layers] [num_kv_heads] [size] [bounds] [segments] [table_rows] [table_columns] (num_heads: i64) (page_size: i64) (head_dim: i64) (scale: f32) (cache: [pages][layers][num_kv_heads][2][size]f32) (layer: i64) (query_begin: [bounds]i32) (context_length: [segments]i32) (table_row: [segments]i32) (page_table: [table_rows][table_columns]i32) (query: [tokens][num_heads * head_dim]f32) : [tokens][num_heads * head_dim]f32 =
  #[unsafe]
  let group = num_heads / num_kv_heads
  let heads = unflatten (flatten query :> [(tokens * num_heads) * head_dim]f32)
  let output row =
    let token = row / num_heads
    let segment = segment_of query_begin token
    let behind = i64.i32 query_begin[segment + 1] - 1 - token
    let context = i64.i32 context_length[segment] - behind
    let table = page_table[table_row[segment]]
    in if behind < 0
       then replicate head_dim 0
       else attend page_size head_dim scale cache layer (row % num_heads / group) table context heads[row]
  in unflatten (flatten (tabulate (tokens * num_heads) output) :> [tokens * (num_heads * head_dim)]f32)
