import "controls"
import "counts"

def largest_finite : f32 = 3.4028234663852886e38

#[inline]
def bounded (logit: f32) : f32 = f32.max (-largest_finite) (f32.min largest_finite logit)

#[inline]
def penalised (controls: row_controls) (count: u32) (logit: f32) : f32 =
  let repeated =
    if count == 0
    then logit
    else if logit > 0
    then logit / controls.repetition
    else logit * controls.repetition
  let outputs = count & !prompt_mark
  let frequent = bounded repeated - controls.frequency * f32.u32 outputs
  let present = if outputs == 0 then 0 else controls.presence
  in bounded (bounded frequent - present)

#[inline]
def is_allowed [words] (mask: [words]u32) (token: i64) : bool =
  #[unsafe] (mask[token / 32] >> u32.i64 (token % 32)) & 1 == 1

#[inline]
def occurrences [drafted] (draft: i32) (drafts: [drafted]i32) : u32 =
  loop count = 0 for other in drafts do if other == draft then count + 1 else count

#[inline]
def adjusted_row [vocab] [counted] [drafted] [words] [biases]
                 (controls: row_controls)
                 (counts: [counted]u32)
                 (drafts: [drafted]i32)
                 (bias_tokens: [biases]i32)
                 (bias_values: [biases]f32)
                 (mask: [words]u32)
                 (logits: [vocab]f32) : *[vocab]f32 =
  #[unsafe]
  let row =
    if counted == 0
    then copy logits
    else #[sequential] map2 (penalised controls) (counts :> [vocab]u32) logits
  let row =
    loop row for draft in if counted == 0 then [] else drafts do
      let token = i64.i32 draft
      let count = counts[token] + occurrences draft drafts
      in row with [token] = penalised controls count logits[token]
  let row =
    loop row for b < biases do
      let token = i64.i32 bias_tokens[b]
      in row with [token] = bounded (row[token] + bias_values[b])
  in if words == 0
     then row
     else #[sequential]
          map2 (\token logit -> if is_allowed mask token then logit else -f32.inf)
               (iota vocab)
               row
