import "norm"

def norm_concat_row [hidden]
                    (vocab: i64)
                    (epsilon: f32)
                    (embedding_norm: [hidden]f32)
                    (row_norm: [hidden]f32)
                    (embedding: i32 -> [hidden]f32)
                    (token: i32)
                    (position: i32)
                    (row: [hidden]f32) : [hidden + hidden]f32 =
  let is_known = position != 0 && token >= 0 && i64.i32 token < vocab
  let embedded = if is_known then embedding token else replicate hidden 0
  in #[sequential] norm_row epsilon embedding_norm embedded ++ norm_row epsilon row_norm row
