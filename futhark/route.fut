import "exponential"

#[inline]
def best_free [experts] (choice: [experts]f32) (taken: [experts]bool) : i64 =
  #[unsafe]
  let (best, _) =
    loop (best, value) = (-1i64, -f32.inf)
    for e < experts do
      if !taken[e] && (best < 0 || choice[e] > value)
      then (e, choice[e])
      else (best, value)
  in best

#[inline]
def select [experts] (top_k: i64) (choice: [experts]f32) : *[top_k]i64 =
  #[unsafe]
  let (chosen, _) =
    loop (chosen, taken) = (replicate top_k 0i64, replicate experts false)
    for j < top_k do
      let best = best_free choice taken
      in (chosen with [j] = best, taken with [best] = true)
  in chosen

#[inline]
def route_row [experts]
              (top_k: i64)
              (normalise: bool)
              (factor: f32)
              (bias: [experts]f32)
              (logits: [experts]f32) : ([top_k]i32, [top_k]f32) =
  #[unsafe]
  let scores = #[sequential] map sigmoid logits
  let chosen = select top_k (#[sequential] map2 (+) scores bias)
  let sum = loop sum = 0 for expert in chosen do sum + scores[expert]
  let divisor = if normalise then sum + 1e-20 else 1
  let weights = #[sequential] map (\expert -> scores[expert] / divisor * factor) chosen
  in (#[sequential] map i32.i64 chosen, weights)
