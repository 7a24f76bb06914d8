import "norm"

def norm_concat_row [hidden]
                    (epsilon: f32)
                    (embedding_norm: [hidden]f32)
                    (row_norm: [hidden]f32)
                    (embedding: i32 -> [hidden]f32)
                    (token: i32)
                    (position: i32)
                    (row: [hidden]f32) : [hidden + hidden]f32 =
  let embedded = if position == 0 then replicate hidden 0 else embedding token
  in #[sequential] norm_row epsilon embedding_norm embedded ++ norm_row epsilon row_norm row
