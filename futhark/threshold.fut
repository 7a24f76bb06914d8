import "exponential"
import "controls"
import "select"
import "sums"

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
          let total = sum_of (\token -> if keys[token] >= floor then masses[token] else 0) vocab
          in select_threshold (\token -> masses[token]) keys floor (f64.f32 controls.top_p * total)
     else floor
