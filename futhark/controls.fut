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
