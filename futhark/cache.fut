import "fp8"
import "norm"
import "rope"

type^ codec 'stored =
  { encode: f32 -> stored
  , decode: stored -> f32
  , key_scale: i64 -> f32
  , value_scale: i64 -> f32
  }

def float32 : codec f32 =
  { encode = \value -> value
  , decode = \value -> value
  , key_scale = \_ -> 1
  , value_scale = \_ -> 1
  }

#[inline]
def scale_or_one [scales] (scale: [scales]f32) (index: i64) : f32 =
  #[unsafe] if scales == 0 then 1 else scale[index]

def e4m3 [keys] [values]
         (first_head: i64)
         (key_scale: [keys]f32)
         (value_scale: [values]f32) : codec u8 =
  { encode = fp8.encode
  , decode = fp8.decode_anchored
  , key_scale = \kv_head -> scale_or_one key_scale (first_head + kv_head)
  , value_scale = \kv_head -> scale_or_one value_scale (first_head + kv_head)
  }

type cache_shape =
  { num_heads: i64
  , num_kv_heads: i64
  , num_layers: i64
  , page_size: i64
  }

#[inline]
def head_of [tokens] [width]
            (head_dim: i64)
            (qkv: [tokens][width]f32)
            (token: i64)
            (head: i64) : [head_dim]f32 =
  #[unsafe] qkv[token, head * head_dim:(head + 1) * head_dim] :> [head_dim]f32

def queries [tokens] [width]
            (num_heads: i64)
            (head_dim: i64)
            (turn: i64 -> [head_dim]f32 -> [head_dim]f32)
            (qkv: [tokens][width]f32) : [tokens][num_heads * head_dim]f32 =
  let query row =
    let token = row / num_heads
    in turn token (head_of head_dim qkv token (row % num_heads))
  let rows = flatten (tabulate (tokens * num_heads) query)
  in unflatten (rows :> [tokens * (num_heads * head_dim)]f32)

#[inline]
def block_begin (shape: cache_shape) (head_dim: i64) (layer: i64) (page: i64) (kv_head: i64) : i64 =
  let block = (page * shape.num_layers + layer) * shape.num_kv_heads + kv_head
  in block * 2 * head_dim * shape.page_size

#[inline]
def element_index (shape: cache_shape) (head_dim: i64) (begin: i64) (offset: i64) (i: i64) : i64 =
  if i < head_dim
  then begin + i * shape.page_size + offset
  else begin + head_dim * shape.page_size + offset * head_dim + i - head_dim

def store [tokens] [width] [size] 'stored
          (codec: codec stored)
          (shape: cache_shape)
          (head_dim: i64)
          (turn: i64 -> [head_dim]f32 -> [head_dim]f32)
          (layer: i64)
          (slots: [tokens]i32)
          (qkv: [tokens][width]f32)
          (cache: *[size]stored) : *[size]stored =
  let num_kv_heads = shape.num_kv_heads
  let entry_of row =
    #[unsafe]
    let token = row / num_kv_heads
    let head = row % num_kv_heads
    let slot = i64.i32 slots[token]
    let begin = block_begin shape head_dim layer (slot / shape.page_size) head
    let key = turn token (head_of head_dim qkv token (shape.num_heads + head))
    let value = head_of head_dim qkv token (shape.num_heads + num_kv_heads + head)
    let element i =
      let index = element_index shape head_dim begin (slot % shape.page_size) i
      let quotient =
        if i < head_dim
        then key[i] / codec.key_scale head
        else value[i - head_dim] / codec.value_scale head
      in (index, codec.encode quotient)
    in unzip (#[sequential] tabulate (2 * head_dim) element)
  let (indices, values) = unzip (tabulate (tokens * num_kv_heads) entry_of)
  in scatter cache (flatten indices) (flatten values)

def norm_rope_store [tokens] [width] [query_weights] [key_weights] [positions] [half] [size] 'stored
                    (codec: codec stored)
                    (num_heads: i64)
                    (num_kv_heads: i64)
                    (head_dim: i64)
                    (num_layers: i64)
                    (page_size: i64)
                    (layer: i64)
                    (epsilon: f32)
                    (query_norm: [query_weights]f32)
                    (key_norm: [key_weights]f32)
                    (cosine: [positions][half]f32)
                    (sine: [positions][half]f32)
                    (position: [tokens]i32)
                    (slot: [tokens]i32)
                    (qkv: [tokens][width]f32)
                    (cache: *[size]stored) : ([tokens][num_heads * head_dim]f32, *[size]stored) =
  let shape = {num_heads, num_kv_heads, num_layers, page_size}
  let turn weight token (head: [head_dim]f32) =
    #[unsafe]
    let at = i64.i32 position[token]
    in rotate cosine[at] sine[at] (norm_head epsilon weight head)
  in ( queries num_heads head_dim (turn query_norm) qkv
     , store codec shape head_dim (turn key_norm) layer slot qkv cache
     )
