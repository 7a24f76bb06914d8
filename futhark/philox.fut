def multiplier_a : u32 = 0xD2511F53
def multiplier_b : u32 = 0xCD9E8D57
def weyl_a : u32 = 0x9E3779B9
def weyl_b : u32 = 0xBB67AE85
def rounds : i64 = 10

#[inline]
def high_product (a: u32) (b: u32) : u32 = u32.u64 ((u64.u32 a * u64.u32 b) >> 32)

#[inline]
def philox (key: u64) (counter: (u32, u32, u32, u32)) : (u32, u32, u32, u32) =
  let (words, _, _) =
    loop ((a, b, c, d), key_a, key_b) = (counter, u32.u64 key, u32.u64 (key >> 32))
    for _round < rounds do
      ( ( high_product multiplier_b c ^ b ^ key_a
        , multiplier_b * c
        , high_product multiplier_a a ^ d ^ key_b
        , multiplier_a * a
        )
      , key_a + weyl_a
      , key_b + weyl_b
      )
  in words

#[inline]
def random_words (seed: u64) (position: i32) (quad: i64) : (u32, u32, u32, u32) =
  philox seed (u32.i64 quad, u32.i32 position, 0, 0)

#[inline]
def gumbel (word: u32) : f64 =
  let uniform = (f64.u32 word + 0.5) / 4294967296
  in -f64.log (-f64.log (1 - uniform))

#[inline]
def gumbel_bound (word: u32) : f32 = 0.6932 * f32.i32 (u32.clz word + 1)
