import "exponential"
import "philox"

def prompt_mark : u32 = 0x80000000
def digit_values : i64 = 256

type row_controls =
  { temperature: f32
  , top_p: f32
  , min_p: f32
  , top_k: i32
  , repetition: f32
  , frequency: f32
  , presence: f32
  , seed: u64
  , position: i32
  }

#[inline]
def ordered (value: f32) : u32 =
  let bits = f32.to_bits (value + 0)
  in if bits >> 31 == 1 then !bits else bits | 0x80000000

#[inline]
def is_finite_row [vocab] (logits: [vocab]f32) : bool =
  let worst =
    loop worst = 0i32
    for logit in logits do
      i32.max worst (i32.u32 (f32.to_bits logit & 0x7fffffff))
  in worst < 0x7f800000

#[inline]
def penalised (controls: row_controls) (count: u32) (logit: f32) : f32 =
  let repeated =
    if count == 0
    then logit
    else if logit > 0
    then logit / controls.repetition
    else logit * controls.repetition
  let outputs = count & !prompt_mark
  let frequent = repeated - controls.frequency * f32.u32 outputs
  in if outputs == 0 then frequent else frequent - controls.presence

#[inline]
def is_allowed [words] (mask: [words]u32) (token: i64) : bool =
  #[unsafe] (mask[token / 32] >> u32.i64 (token % 32)) & 1 == 1

#[inline]
def adjusted_row [vocab] [counted] [words] [biases] (controls: row_controls) (counts: [counted]u32) (bias_tokens: [biases]i32) (bias_values: [biases]f32) (mask: [words]u32) (logits: [vocab]f32) : *[vocab]f32 =
  #[unsafe]
  let row = copy logits
  let row =
    loop row for token < counted do
      row with [token] = penalised controls counts[token] row[token]
  let row =
    loop row for b < biases do
      let token = i64.i32 bias_tokens[b]
      in row with [token] = row[token] + bias_values[b]
  in if words == 0
     then row
     else loop row for token < vocab do
            row with [token] = if is_allowed mask token then row[token] else -f32.inf

#[inline]
def greatest [vocab] (row: [vocab]f32) : (i64, f32) =
  #[unsafe]
  loop (best, value) = (-1i64, -f32.inf)
  for token < vocab do
    if row[token] > value then (token, row[token]) else (best, value)

#[inline]
def log_sum_exp [vocab] (row: [vocab]f32) (largest: f32) : f64 =
  let sum = loop sum = 0f64 for logit in row do sum + f64.f32 (exponential (logit - largest))
  in f64.f32 largest + f64.log sum

#[inline]
def insert_best [wanted] (token: i64) (value: f32) (ids: *[wanted]i32) (values: *[wanted]f32) : (*[wanted]i32, *[wanted]f32) =
  #[unsafe]
  let (ids, values, at) =
    loop (ids, values, at) = (ids, values, wanted - 1)
    while at > 0 && values[at - 1] < value do
      let id = ids[at - 1]
      let other = values[at - 1]
      in (ids with [at] = id, values with [at] = other, at - 1)
  in (ids with [at] = i32.i64 token, values with [at] = value)

#[inline]
def best_tokens [vocab] (capacity: i64) (wanted: i64) (row: [vocab]f32) : (*[capacity]i32, *[capacity]f32) =
  #[unsafe]
  let ids = replicate capacity (-1i32)
  let values = replicate capacity (-f32.inf)
  in if wanted == 0
     then (ids, values)
     else loop (ids, values) for token < vocab do
            if row[token] > values[wanted - 1]
            then let (ids, values) = insert_best token row[token] ids values
                 in (ids, values)
            else (ids, values)

#[inline]
def select_threshold [vocab] (weight: i64 -> f64) (keys: [vocab]u32) (floor: u32) (target: f64) : u32 =
  #[unsafe]
  let (prefix, _, _) =
    loop (prefix, known, above) = (0u32, 0u32, 0f64)
    for digit < 4i64 do
      let shift = u32.i64 (24 - 8 * digit)
      let (mass, filled) =
        loop (mass, filled) = (replicate digit_values 0f64, replicate digit_values false)
        for token < vocab do
          let key = keys[token]
          in if key < floor || (key ^ prefix) & known != 0
             then (mass, filled)
             else let bin = i64.u32 ((key >> shift) & 255)
                  in (mass with [bin] = mass[bin] + weight token, filled with [bin] = true)
      let (chosen, over, _) =
        loop (chosen, over, bin) = (-1i64, above, digit_values - 1)
        while bin >= 0 && (chosen < 0 || over + mass[chosen] < target) do
          if filled[bin]
          then let over = if chosen < 0 then over else over + mass[chosen]
               in (bin, over, bin - 1)
          else (chosen, over, bin - 1)
      let bin = u32.i64 (i64.max chosen 0)
      in (prefix | (bin << shift), known | (255 << shift), over)
  in u32.max prefix floor

#[inline]
def min_p_floor (controls: row_controls) : u32 =
  if controls.min_p > 0
  then ordered (f32.log controls.min_p)
  else 0

#[inline]
def survivors_floor [vocab] (controls: row_controls) (scaled: [vocab]f32) : u32 =
  #[unsafe]
  let keys = #[sequential] map ordered scaled
  let floor = u32.max (min_p_floor controls) (ordered (-f32.inf) + 1)
  let floor =
    if controls.top_k > 0 && i64.i32 controls.top_k < vocab
    then select_threshold (const 1) keys floor (f64.i32 controls.top_k)
    else floor
  in if controls.top_p < 1
     then let masses = #[sequential] map (\logit -> f64.f32 (exponential logit)) scaled
          let total = loop total = 0f64 for token < vocab do if keys[token] >= floor then total + masses[token] else total
          in select_threshold (\token -> masses[token]) keys floor (f64.f32 controls.top_p * total)
     else floor

type candidate = (i64, f64)

#[inline]
def better_candidate (floor: u32)
                     (token: i64)
                     (scaled: f32)
                     (word: u32)
                     ((best, value): candidate) : candidate =
  if ordered scaled < floor || f64.f32 (scaled + gumbel_bound word) < value
  then (best, value)
  else let score = f64.f32 scaled + gumbel word
       in if score > value then (token, score) else (best, value)

#[inline]
def gumbel_maximum [vocab] (controls: row_controls) (scaled: [vocab]f32) (floor: u32) : i64 =
  #[unsafe]
  let consider quad lane word best =
    let token = 4 * quad + lane
    in if token < vocab then better_candidate floor token scaled[token] word best else best
  let (best, _) =
    loop best = (-1, -f64.inf) for quad < (vocab + 3) / 4 do
      let (a, b, c, d) = random_words controls.seed controls.position quad
      in consider quad 0 a best
         |> consider quad 1 b
         |> consider quad 2 c
         |> consider quad 3 d
  in best

#[inline]
def draw [vocab] (controls: row_controls) (row: [vocab]f32) : i64 =
  let (best, largest) = greatest row
  in if controls.temperature == 0 || best < 0
     then best
     else let scaled = #[sequential] map (\logit -> (logit - largest) / controls.temperature) row
          let floor = survivors_floor controls scaled
          in gumbel_maximum controls scaled floor

type sampled [capacity] =
  { token: i32
  , is_finite: i32
  , logprob: f32
  , top_ids: [capacity]i32
  , top_logprobs: [capacity]f32
  }

#[inline]
def with_logprobs [vocab] (capacity: i64) (wanted: i64) (row: [vocab]f32) (token: i64) : sampled [capacity] =
  #[unsafe]
  let (_, largest) = greatest row
  let normaliser = log_sum_exp row largest
  let log_probability (logit: f32) = f32.f64 (f64.f32 logit - normaliser)
  let (top_ids, values) = best_tokens capacity wanted row
  let logprob = if token < 0 then -f32.inf else log_probability row[token]
  in { token = i32.i64 token
     , is_finite = 1
     , logprob
     , top_ids
     , top_logprobs = #[sequential] map log_probability values
     }

#[inline]
def without_logprobs (capacity: i64) (token: i64) (is_finite: i32) : sampled [capacity] =
  { token = i32.i64 token
  , is_finite
  , logprob = -f32.inf
  , top_ids = replicate capacity (-1)
  , top_logprobs = replicate capacity (-f32.inf)
  }

#[inline]
def sample_row [vocab] [counted] [words] [biases] (capacity: i64) (controls: row_controls) (num_logprobs: i32) (counts: [counted]u32) (bias_tokens: [biases]i32) (bias_values: [biases]f32) (mask: [words]u32) (logits: [vocab]f32) : sampled [capacity] =
  if is_finite_row logits
  then let row = adjusted_row controls counts bias_tokens bias_values mask logits
       let token = draw controls row
       in if num_logprobs >= 0
          then with_logprobs capacity (i64.min capacity (i64.i32 num_logprobs)) row token
          else without_logprobs capacity token 1
  else without_logprobs capacity (-1) 0

def count_tokens [vocab] [tokens] (reset: bool) (from_prompt: bool) (token_ids: [tokens]i32) (counts: *[vocab]u32) : *[vocab]u32 =
  #[unsafe]
  let counts = if reset then counts with [:] = replicate vocab 0 else counts
  in loop counts for token in token_ids do
       let t = i64.i32 token
       let counted = if from_prompt then counts[t] | prompt_mark else counts[t] + 1
       in counts with [t] = counted

#[inline]
def row_or_none [rows] [width] (table: [rows][width]u32) (row: i32) : []u32 =
  #[unsafe]
  let length = if row < 0 then 0 else width
  in table[i64.i32 (i32.max row 0)][0:length]

def advance_counts [rows] [count_rows] [vocab] (count_row: [rows]i32) (token_ids: [rows]i32) (counts: *[count_rows][vocab]u32) : *[count_rows][vocab]u32 =
  #[unsafe]
  loop counts for r < rows do
    let row = i64.i32 count_row[r]
    let token = i64.i32 token_ids[r]
    in if row < 0 || token < 0
       then counts
       else counts with [row, token] = counts[row, token] + 1
