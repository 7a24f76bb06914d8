import "controls"
import "adjust"
import "logprobs"
import "threshold"
import "gumbel"

#[inline]
def draw [vocab] (controls: row_controls) (forced_token: i32) (row: [vocab]f32) : i64 =
  let (best, largest) = greatest row
  in if best >= 0 && forced_token >= 0
     then i64.i32 forced_token
     else if controls.temperature == 0 || best < 0
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
def with_logprobs [vocab]
                  (capacity: i64)
                  (wanted: i64)
                  (row: [vocab]f32)
                  (token: i64) : sampled [capacity] =
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
def sample_row [vocab] [counted] [drafted] [words] [biases]
               (capacity: i64)
               (controls: row_controls)
               (num_logprobs: i32)
               (forced_token: i32)
               (counts: [counted]u32)
               (drafts: [drafted]i32)
               (bias_tokens: [biases]i32)
               (bias_values: [biases]f32)
               (mask: [words]u32)
               (logits: [vocab]f32) : sampled [capacity] =
  if is_finite_row logits
  then let row = adjusted_row controls counts drafts bias_tokens bias_values mask logits
       let token = draw controls forced_token row
       in if num_logprobs >= 0
          then with_logprobs capacity (i64.min capacity (i64.i32 num_logprobs)) row token
          else without_logprobs capacity token 1
  else without_logprobs capacity (-1) 0
