def prompt_mark : u32 = 0x80000000

def count_tokens [vocab] [tokens]
                 (reset: bool)
                 (from_prompt: bool)
                 (token_ids: [tokens]i32)
                 (counts: *[vocab]u32) : *[vocab]u32 =
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
