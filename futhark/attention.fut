import "exponential"
import "cache"
import "attention_rows"

type segments [bounds] [count] [table_rows] [table_columns] =
  { query_begin: [bounds]i32
  , context_length: [count]i32
  , table_row: [count]i32
  , page_table: [table_rows][table_columns]i32
  }

def lanes : i64 = 64
def fewest_lanes : i64 = 32

#[inline]
def add_eight_to_one [sources] [targets]
                     (active: i64 -> i64 -> bool)
                     (factors: i64 -> i64 -> f32)
                     (values: [sources][lanes]f32)
                     (i: i64)
                     (t: i64)
                     (sums: *[targets][lanes]f32) : *[targets][lanes]f32 =
  #[unsafe]
  let f0 = factors t i
  let f1 = factors t (i + 1)
  let f2 = factors t (i + 2)
  let f3 = factors t (i + 3)
  let f4 = factors t (i + 4)
  let f5 = factors t (i + 5)
  let f6 = factors t (i + 6)
  let f7 = factors t (i + 7)
  let add i n factor sum = if active i n then sum + factor * values[i, n] else sum
  in loop sums for n < lanes do
       let sum = add i n f0 sums[t, n]
       let sum = add (i + 1) n f1 sum
       let sum = add (i + 2) n f2 sum
       let sum = add (i + 3) n f3 sum
       let sum = add (i + 4) n f4 sum
       let sum = add (i + 5) n f5 sum
       let sum = add (i + 6) n f6 sum
       let sum = add (i + 7) n f7 sum
       in sums with [t, n] = sum

#[inline]
def add_to_one [sources] [targets]
               (active: i64 -> i64 -> bool)
               (factors: i64 -> i64 -> f32)
               (values: [sources][lanes]f32)
               (i: i64)
               (t: i64)
               (sums: *[targets][lanes]f32) : *[targets][lanes]f32 =
  #[unsafe]
  let factor = factors t i
  in loop sums for n < lanes do
       sums with [t, n] = if active i n then sums[t, n] + factor * values[i, n] else sums[t, n]

#[inline]
def add_lanes [sources] [targets]
              (active: i64 -> i64 -> bool)
              (count: i64)
              (factors: i64 -> i64 -> f32)
              (values: [sources][lanes]f32)
              (sums: *[targets][lanes]f32) : *[targets][lanes]f32 =
  let eights = count / 8
  let sums =
    loop sums for e < eights do
      loop sums for t < targets do
        add_eight_to_one active factors values (8 * e) t sums
  in loop sums for i in 8 * eights..<count do
       loop sums for t < targets do
         add_to_one active factors values i t sums

#[inline]
def lane_scores [page_size] [head_dim] [size]
                (active: i64 -> i64 -> bool)
                (scale: f32)
                (query: [head_dim][lanes]f32)
                (key: [size]f32)
                (scores: *[page_size][lanes]f32) : *[page_size][lanes]f32 =
  #[unsafe]
  let every _ _ = true
  let scores =
    loop scores for p < page_size do
      loop scores for n < lanes do scores with [p, n] = 0
  let scores =
    add_lanes every head_dim (\p d -> key[d * page_size + p]) query scores
  in loop scores for p < page_size do
       loop scores for n < lanes do
         scores with [p, n] = if active p n then scores[p, n] * scale else -f32.inf

#[inline]
def lane_maxima [page_size]
                (scores: [page_size][lanes]f32)
                (largest: *[lanes]f32)
                (correction: *[lanes]f32) : (*[lanes]f32, *[lanes]f32) =
  #[unsafe]
  let greatest =
    loop greatest = replicate lanes (in_order (-f32.inf))
    for p < page_size do
      loop greatest for n < lanes do
        greatest with [n] = i32.max greatest[n] (in_order scores[p, n])
  in loop (largest, correction) for n < lanes do
       let page_largest = out_of_order greatest[n]
       let before = largest[n]
       let new_largest = if page_largest > before then page_largest else before
       in (largest with [n] = new_largest, correction with [n] = exponential (before - new_largest))

#[inline]
def add_lane_page [page_size] [head_dim] [size]
                  (active: i64 -> i64 -> bool)
                  (scale: f32)
                  (count: i64)
                  (query: [head_dim][lanes]f32)
                  (key: [size]f32)
                  (value: [size]f32)
                  (largest: *[lanes]f32)
                  (correction: *[lanes]f32)
                  (scores: *[page_size][lanes]f32)
                  (totals: *[page_size][lanes]f32)
                  (sums: *[head_dim][lanes]f32) : ( *[lanes]f32
                                                  , *[lanes]f32
                                                  , *[page_size][lanes]f32
                                                  , *[page_size][lanes]f32
                                                  , *[head_dim][lanes]f32
                                                  ) =
  #[unsafe]
  let scores = lane_scores active scale query key scores
  let (largest, correction) = lane_maxima scores largest correction
  let (scores, totals) =
    loop (scores, totals) for p < page_size do
      loop (scores, totals) for n < lanes do
        let weight = exponential (scores[p, n] - largest[n])
        in ( scores with [p, n] = weight
           , totals with [p, n] = totals[p, n] * correction[n] + weight
           )
  let sums =
    loop sums for d < head_dim do
      loop sums for n < lanes do sums with [d, n] = sums[d, n] * correction[n]
  let sums =
    add_lanes active count (\d p -> value[p * head_dim + d]) scores sums
  in (largest, correction, scores, totals, sums)

#[inline]
def attend_lanes [pages] [layers] [num_kv_heads] [size] [table_columns] [head_dim] 'stored
                 (decode: stored -> f32)
                 (page_size: i64)
                 (scale: f32)
                 (cache: [pages][layers][num_kv_heads][2][size]stored)
                 (layer: i64)
                 (kv_head: i64)
                 (table: [table_columns]i32)
                 (context: [lanes]i32)
                 (query: [head_dim][lanes]f32) : *[head_dim][lanes]f32 =
  #[unsafe]
  let full_pages = i64.i32 context[0] / page_size
  let all_pages = (i64.i32 context[lanes - 1] + page_size - 1) / page_size
  let page i = cache[i64.i32 table[i], layer, kv_head]
  let (largest, correction, scores, totals, sums) =
    loop (largest, correction, scores, totals, sums) =
           ( replicate lanes (-f32.inf)
           , replicate lanes 0
           , replicate page_size (replicate lanes 0)
           , replicate page_size (replicate lanes 0)
           , replicate head_dim (replicate lanes 0)
           )
    for i < full_pages do
      let page = page i
      let key = decoded decode page[0]
      let value = decoded decode page[1]
      let active _ _ = true
      in add_lane_page active scale page_size query key value largest correction scores totals sums
  let (_, correction, _, totals, sums) =
    loop (largest, correction, scores, totals, sums) for i in full_pages..<all_pages do
      let page = page i
      let key = decoded decode page[0]
      let value = decoded decode page[1]
      let begin = i * page_size
      let active p n = i32.i64 (begin + p) < context[n]
      let count = i64.min page_size (i64.i32 context[lanes - 1] - begin)
      in add_lane_page active scale count query key value largest correction scores totals sums
  let total = loop total = correction for n < lanes do total with [n] = 0
  let total =
    loop total for p < page_size do
      loop total for n < lanes do total with [n] = total[n] + totals[p, n]
  in loop sums for d < head_dim do
       loop sums for n < lanes do sums with [d, n] = sums[d, n] / total[n]

type query_blocks [count] [blocks] =
  { first_block: [count]i64
  , num_blocks: [count]i64
  , segment: [blocks]i64
  }

def query_blocks [bounds] [count]
                 (group: i64)
                 (query_begin: [bounds]i32)
                 (context_length: [count]i32) : ?[blocks].query_blocks [count] [blocks] =
  #[unsafe]
  let blocks_of s =
    let queries = i64.i32 (query_begin[s + 1] - query_begin[s])
    let rows = queries * group
    in if queries < 2 || context_length[s] <= 0 then 0 else (rows + lanes - fewest_lanes) / lanes
  let (first_block, num_blocks, blocks) =
    loop (first_block, num_blocks, sum) = (replicate count 0i64, replicate count 0i64, 0)
    for s < count do
      let blocks = blocks_of s
      in (first_block with [s] = sum, num_blocks with [s] = blocks, sum + blocks)
  let segment =
    loop segment = replicate blocks 0i64
    for s < count do
      loop segment for b < num_blocks[s] do
        segment with [first_block[s] + b] = s
  in {first_block, num_blocks, segment}

def attention_blocks [pages]
                     [layers]
                     [num_kv_heads]
                     [size]
                     [bounds]
                     [count]
                     [table_rows]
                     [table_columns]
                     [blocks]
                     [rows]
                     'stored
                     (codec: codec stored)
                     (group: i64)
                     (page_size: i64)
                     (head_dim: i64)
                     (scale: f32)
                     (cache: [pages][layers][num_kv_heads][2][size]stored)
                     (layer: i64)
                     (segments: segments [bounds] [count] [table_rows] [table_columns])
                     (list: query_blocks [count] [blocks])
                     (heads: [rows][head_dim]f32) =
  #[unsafe]
  let task t =
    let kv_head = t / blocks
    let b = t % blocks
    let s = list.segment[b]
    let begin = i64.i32 segments.query_begin[s]
    let end = i64.i32 segments.query_begin[s + 1]
    let length = i64.i32 segments.context_length[s]
    let index n = i64.min ((b - list.first_block[s]) * lanes + n) ((end - begin) * group - 1)
    let token n = begin + index n / group
    let context =
      loop context = replicate lanes 0i32
      for n < lanes do
        context with [n] = i32.i64 (length - (end - 1 - token n))
    let query =
      loop query = replicate head_dim (replicate lanes 0f32)
      for n < lanes do
        let row = heads[(token n * num_kv_heads + kv_head) * group + index n % group]
        in loop query for d < head_dim do query with [d, n] = row[d]
    let table = segments.page_table[segments.table_row[s]]
    let key_scale = scale * codec.key_scale kv_head
    in attend_lanes codec.decode page_size key_scale cache layer kv_head table context query
  in tabulate (blocks * num_kv_heads) task

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
  let group = num_heads / num_kv_heads
  let heads = unflatten (flatten query :> [(tokens * num_heads) * head_dim]f32)
  let list = query_blocks group segments.query_begin segments.context_length
  let blocks = length list.segment
  let attended =
    attention_blocks codec group page_size head_dim scale cache layer segments list heads
  let output row =
    let token = row / num_heads
    let segment = segment_of segments.query_begin token
    let first = i64.i32 segments.query_begin[segment]
    let behind = i64.i32 segments.query_begin[segment + 1] - 1 - token
    let head = row % num_heads
    let kv_head = head / group
    let value_scale = codec.value_scale kv_head
    let index = (token - first) * group + head % group
    let block = index / lanes
    in if behind >= 0 && block < list.num_blocks[segment]
       then let task = kv_head * blocks + list.first_block[segment] + block
            in #[sequential] tabulate head_dim (\d -> attended[task, d, index % lanes] * value_scale)
       else let length = i64.i32 segments.context_length[segment]
            let context = if behind < 0 then 0 else length - behind
            let table = segments.page_table[segments.table_row[segment]]
            let key_scale = scale * codec.key_scale kv_head
            let result =
              attend codec.decode page_size head_dim key_scale cache layer kv_head table context heads[row]
            in #[sequential] map (\value -> if behind < 0 then 0 else value * value_scale) result
  let rows = flatten (tabulate (tokens * num_heads) output)
  in unflatten (rows :> [tokens * (num_heads * head_dim)]f32)
