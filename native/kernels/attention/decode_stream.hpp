#pragma once

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

__device__ inline int32_t page_at(const Arguments& args, const Item& item,
                                  int32_t block) {
  const int32_t* table =
      args.page_table + int64_t{item.table_row} * args.page_table_stride;
  return table[(item.begin + block * kBlockTokens) / args.page_size];
}

template <typename S>
__device__ const uint8_t* block_at(const Arguments& args, const Item& item,
                                   int32_t block, int64_t page) {
  const int32_t token = item.begin + block * kBlockTokens;
  const int64_t blocks_of_page = args.page_size / kBlockTokens;
  const int64_t index =
      (page * args.num_kv_heads + item.kv_head) * blocks_of_page +
      token % args.page_size / kBlockTokens;
  return args.pages + index * S::kBlockBytes;
}

template <typename S>
struct Stream {
  static constexpr int32_t kBlocksAtOnce = S::kStages < 16 ? S::kStages : 16;

  const Arguments& args;
  Shared<S>& shared;
  int32_t lane;
  bool has_waited = false;
  Cursor<S::kStages> ring;
  Cursor<kQueryBuffers> query;

  __device__ void wait() {
    if (!has_waited) ptx::wait_for_predecessor();
    has_waited = true;
  }

  __device__ const __nv_bfloat16* query_of(const Item& item, int32_t back) {
    const int64_t head = int64_t{item.segment - back} * args.num_heads +
                         int64_t{item.kv_head} * args.group;
    return args.query + head * args.head_dim;
  }

  __device__ void copy_query(const Item& item, uint64_t* full) {
    const int32_t bytes = args.head_dim * 2;
    if (lane == 0)
      ptx::barrier_expect(full, rows_of<S>(item) * args.group * bytes);
    else
      ptx::barrier_arrive(full);
    __syncwarp();
    if (lane >= args.group) return;
    for (int32_t back = 0; back < rows_of<S>(item); ++back)
      ptx::bulk_copy(shared.query[query.slot][back] + lane * S::kQueryStride,
                     query_of(item, back) + int64_t{lane} * args.head_dim,
                     bytes, full);
  }

  __device__ void store_query(const Item& item, int32_t back) {
    const __nv_bfloat16* rows = query_of(item, back);
    uint8_t* place = shared.query[query.slot][back];
    for (int32_t i = lane; i < args.group * args.head_dim; i += 32) {
      const int32_t row = i / args.head_dim;
      auto* into =
          reinterpret_cast<__nv_bfloat16*>(place + row * S::kQueryStride);
      into[i - row * args.head_dim] = rows[i];
    }
  }

  __device__ void send_query(const Item& item) {
    wait();
    ptx::barrier_wait(&shared.query_empty[query.slot], query.parity ^ 1);
    uint64_t* full = &shared.query_full[query.slot];
    if (args.head_dim * 2 % kChunkBytes == 0) {
      copy_query(item, full);
    } else {
      for (int32_t back = 0; back < rows_of<S>(item); ++back)
        store_query(item, back);
      ptx::warp_arrive(full);
    }
    query.template advance<1>();
  }

  __device__ bool send_block(const uint8_t* source) {
    Cursor<S::kStages> place = ring;
    place.advance(lane);
    if (!ptx::barrier_test(&shared.empty[place.slot], place.parity ^ 1))
      return false;
    uint64_t* full = &shared.full[place.slot];
    if (source == nullptr) {
      ptx::barrier_arrive(full);
      return true;
    }
    ptx::barrier_expect(full, S::kBlockBytes);
    ptx::bulk_copy(shared.ring[place.slot], source, S::kBlockBytes, full,
                   ptx::kEvictFirst);
    return true;
  }

  __device__ void send_blocks(const uint8_t* source, int32_t first,
                              int32_t count) {
    uint32_t sent = 0;
    while (count > 0) {
      const auto mine = reinterpret_cast<const uint8_t*>(__shfl_sync(
          ~0u, reinterpret_cast<unsigned long long>(source), first + lane));
      const bool is_next =
          lane < min(count, kBlocksAtOnce) && (sent >> lane & 1) == 0;
      sent |= __ballot_sync(~0u, is_next && send_block(mine));
      const int32_t steps = __ffs(static_cast<int32_t>(~sent)) - 1;
      if (steps == 0) continue;
      sent >>= steps;
      first += steps;
      count -= steps;
      ring.advance(steps);
    }
  }

  __device__ int32_t page_of_lane(const Item& item, int32_t begin) const {
    const int32_t block = begin + lane;
    return block < item.num_blocks() ? page_at(args, item, block) : 0;
  }

  __device__ const uint8_t* source_of_lane(const Item& item, int32_t begin,
                                           int32_t page) const {
    const int32_t block = begin + lane;
    return block < item.num_blocks() ? block_at<S>(args, item, block, page)
                                     : nullptr;
  }

  __device__ int32_t num_early(const Item& item, int32_t begin,
                               int32_t count) const {
    if (has_waited) return 0;
    const int32_t context_length = shared.segments[item.segment].context_length;
    const int32_t before_step =
        (context_length - args.rows_per_sequence) / kBlockTokens -
        item.begin / kBlockTokens - begin;
    return max(min(min(count, before_step), S::kStages - begin), 0);
  }

  __device__ void send_item(const Item& item, int32_t page) {
    const int32_t num_blocks = num_parts<S>(item.num_blocks()) * S::kStepBlocks;
    bool has_query = false;
    for (int32_t begin = 0; begin < num_blocks; begin += 32) {
      const uint8_t* source = source_of_lane(item, begin, page);
      page = page_of_lane(item, begin + 32);
      const int32_t count = min(32, num_blocks - begin);
      int32_t first = 0;
      int32_t end = num_early(item, begin, count);
      while (first < count) {
        if (end == 0 && !has_query) {
          send_query(item);
          has_query = true;
        }
        if (end == 0) end = count;
        send_blocks(source, first, end - first);
        first = end;
        end = 0;
      }
    }
    if (!has_query) send_query(item);
  }
};

}
