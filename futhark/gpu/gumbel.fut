import "philox"
import "controls"
import "select"
import "logprobs"

#[inline]
def gumbel_maximum [vocab] (controls: row_controls) (scaled: [vocab]f32) (floor: u32) : i64 =
  #[unsafe]
  let candidate token value =
    let (a, b, c, d) = random_words controls.seed controls.position (token / 4)
    let lane = token % 4
    let word = if lane == 0 then a else if lane == 1 then b else if lane == 2 then c else d
    in if ordered value < floor then (-1, -f64.inf) else (token, f64.f32 value + gumbel word)
  let (best, _) =
    reduce_comm (better (f64.>)) (-1, -f64.inf) (map2 candidate (iota vocab) scaled)
  in best
