import "exponential"
import "cache"

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
def in_order (value: f32) : i32 =
  let bits = i32.u32 (f32.to_bits value)
  in bits ^ ((bits >> 31) & 0x7fffffff)

#[inline]
def out_of_order (ordered: i32) : f32 =
  f32.from_bits (u32.i32 (ordered ^ ((ordered >> 31) & 0x7fffffff)))

#[inline]
def largest_of [count] (values: [count]f32) : f32 =
  let greatest =
    loop greatest = in_order (-f32.inf)
    for value in values do
      i32.max greatest (in_order value)
  in out_of_order greatest

#[inline]
def add_eight_products [width] [size]
                       (factors: i64 -> f32)
                       (rows: [size]f32)
                       (first: i64)
                       (sums: *[width]f32) : *[width]f32 =
  #[unsafe]
  let part = unflatten (rows[first * width:(first + 8) * width] :> [8 * width]f32)
  let f0 = factors first
  let f1 = factors (first + 1)
  let f2 = factors (first + 2)
  let f3 = factors (first + 3)
  let f4 = factors (first + 4)
  let f5 = factors (first + 5)
  let f6 = factors (first + 6)
  let f7 = factors (first + 7)
  in loop sums for i < width do
       let sum = sums[i] + f0 * part[0, i]
       let sum = sum + f1 * part[1, i]
       let sum = sum + f2 * part[2, i]
       let sum = sum + f3 * part[3, i]
       let sum = sum + f4 * part[4, i]
       let sum = sum + f5 * part[5, i]
       let sum = sum + f6 * part[6, i]
       let sum = sum + f7 * part[7, i]
       in sums with [i] = sum

#[inline]
def add_product [width] [size]
                (factors: i64 -> f32)
                (rows: [size]f32)
                (at: i64)
                (sums: *[width]f32) : *[width]f32 =
  #[unsafe]
  let part = rows[at * width:(at + 1) * width]
  let factor = factors at
  in loop sums for i < width do
       sums with [i] = sums[i] + factor * part[i]

#[inline]
def add_products [width] [size]
                 (count: i64)
                 (factors: i64 -> f32)
                 (rows: [size]f32)
                 (sums: *[width]f32) : *[width]f32 =
  let eights = count / 8
  let sums =
    loop sums for e < eights do
      add_eight_products factors rows (8 * e) sums
  in loop sums for at in eights * 8..<count do
       add_product factors rows at sums

#[inline]
def page_scores [head_dim] [size]
                (page_size: i64)
                (scale: f32)
                (count: i64)
                (query: [head_dim]f32)
                (key: [size]f32) : *[page_size]f32 =
  #[unsafe]
  let scores = add_products head_dim (\d -> query[d]) key (replicate page_size 0)
  in loop scores for p < page_size do
       scores with [p] = if p < count then scores[p] * scale else -f32.inf

#[inline]
def add_page [page_size] [head_dim] [size]
             (scale: f32)
             (count: i64)
             (query: [head_dim]f32)
             (key: [size]f32)
             (value: [size]f32)
             (largest: f32)
             (totals: *[page_size]f32)
             (sums: *[head_dim]f32) : (f32, *[page_size]f32, *[head_dim]f32) =
  #[unsafe]
  let scores = page_scores page_size scale count query key
  let page_largest = largest_of scores
  let new_largest = if page_largest > largest then page_largest else largest
  let correction = exponential (largest - new_largest)
  let weights =
    loop scores for p < page_size do
      scores with [p] = exponential (scores[p] - new_largest)
  let totals =
    loop totals for p < page_size do
      totals with [p] = totals[p] * correction + weights[p]
  let sums = loop sums for d < head_dim do sums with [d] = sums[d] * correction
  in (new_largest, totals, add_products count (\p -> weights[p]) value sums)

#[inline]
def decoded [size] 'stored (decode: stored -> f32) (values: [size]stored) : [size]f32 =
  #[sequential] map decode values

#[inline]
def attend [pages] [layers] [num_kv_heads] [size] [table_columns] 'stored
           (decode: stored -> f32)
           (page_size: i64)
           (head_dim: i64)
           (scale: f32)
           (cache: [pages][layers][num_kv_heads][2][size]stored)
           (layer: i64)
           (kv_head: i64)
           (table: [table_columns]i32)
           (context: i64)
           (query: [head_dim]f32) : [head_dim]f32 =
  #[unsafe]
  let num_context_pages = (context + page_size - 1) / page_size
  let (_, totals, sums) =
    loop (largest, totals, sums) = (-f32.inf, replicate page_size 0, replicate head_dim 0)
    for i < num_context_pages do
      let page = cache[i64.i32 table[i], layer, kv_head]
      let count = i64.min page_size (context - i * page_size)
      let key = decoded decode page[0]
      let value = decoded decode page[1]
      in add_page scale count query key value largest totals sums
  let total = loop total = 0 for part in totals do total + part
  in #[sequential] map (/ total) sums
