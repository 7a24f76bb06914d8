import "philox"
import "controls"
import "select"

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
    loop best = (-1, -f64.inf)
    for quad < (vocab + 3) / 4 do
      let (a, b, c, d) = random_words controls.seed controls.position quad
      in consider quad 0 a best
         |> consider quad 1 b
         |> consider quad 2 c
         |> consider quad 3 d
  in best
