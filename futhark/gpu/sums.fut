import "rows"

def num_partial_sums : i64 = 1024
def num_joint_sums : i64 = 32

#[inline]
def sum_of (term: i64 -> f64) (count: i64) : f64 =
  #[unsafe]
  let partial first =
    loop sum = 0f64
    for i < (count - first + num_partial_sums - 1) / num_partial_sums do
      sum + term (first + i * num_partial_sums)
  let partials = tabulate num_partial_sums partial
  let each = num_partial_sums / num_joint_sums
  let joint j = loop sum = 0f64 for i < each do sum + partials[j * each + i]
  let sums = tabulate num_joint_sums joint
  in by_one_thread (\_ -> loop sum = 0f64 for part in sums do sum + part)
