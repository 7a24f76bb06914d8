#ifndef GLM_KERNELS_ATTENTION_DECODE_STREAM_HPP
#define GLM_KERNELS_ATTENTION_DECODE_STREAM_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

template <typename S>
__device__ const uint8_t* block_at(const Arguments& args, const Item& item,
                                   int32_t block) {
  const int32_t token = item.begin + block * kBlockTokens;
  const int32_t* table =
      args.page_table + int64_t{item.table_row} * args.page_table_stride;
  const int64_t page = table[token / args.page_size];
  const int64_t blocks_of_page = args.page_size / kBlockTokens;
  const int64_t index =
      (page * args.num_kv_heads + item.kv_head) * blocks_of_page +
      token % args.page_size / kBlockTokens;
  return args.pages + index * S::kBlockBytes;
}

template <typename S>
struct Stream {
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

  __device__ void send_rows(const __nv_bfloat16* rows, uint8_t* place) {
    uint64_t* full = &shared.query_full[query.slot];
    const int32_t bytes = args.head_dim * 2;
    if (bytes % kChunkBytes == 0) {
      if (lane == 0)
        ptx::barrier_expect(full, args.group * bytes);
      else
        ptx::barrier_arrive(full);
      __syncwarp();
      if (lane < args.group)
        ptx::bulk_copy(place + lane * S::kQueryStride,
                       rows + int64_t{lane} * args.head_dim, bytes, full);
      return;
    }
    for (int32_t i = lane; i < args.group * args.head_dim; i += 32) {
      const int32_t row = i / args.head_dim;
      auto* into =
          reinterpret_cast<__nv_bfloat16*>(place + row * S::kQueryStride);
      into[i - row * args.head_dim] = rows[i];
    }
    ptx::warp_arrive(full);
  }

  __device__ void send_query(const Item& item) {
    wait();
    ptx::barrier_wait(&shared.query_empty[query.slot], query.parity ^ 1);
    const int64_t head = int64_t{item.segment} * args.num_heads +
                         int64_t{item.kv_head} * args.group;
    send_rows(args.query + head * args.head_dim, shared.query[query.slot]);
    query.advance(1);
  }

  __device__ void send_group(const uint8_t* source, int32_t count) {
    if (lane < S::kWarps) {
      const int32_t slot = ring.slot + lane;
      ptx::barrier_wait(&shared.empty[slot], ring.parity ^ 1);
      if (lane < count) {
        ptx::barrier_expect(&shared.full[slot], S::kBlockBytes);
        ptx::bulk_copy(shared.ring[slot], source, S::kBlockBytes,
                       &shared.full[slot], ptx::kEvictFirst);
      } else {
        ptx::barrier_arrive(&shared.full[slot]);
      }
    }
    __syncwarp();
    ring.advance(S::kWarps);
  }

  __device__ const uint8_t* first_sources(const Item& item) {
    const int32_t last = item.num_blocks() - 1;
    return last < 0 ? nullptr : block_at<S>(args, item, min(lane, last));
  }

  __device__ void send_item(const Item& item, const uint8_t* source) {
    const int32_t num_blocks = item.num_blocks();
    const bool is_newest = item.chunk + 1 == item.num_chunks;
    bool has_query = false;
    for (int32_t begin = 0; begin < num_blocks; begin += S::kWarps) {
      if (begin % 32 == 0 && begin > 0)
        source = block_at<S>(args, item, min(begin + lane, num_blocks - 1));
      const int32_t count = min(S::kWarps, num_blocks - begin);
      const bool is_early = !has_waited && begin < S::kStages &&
                            !(is_newest && begin + count == num_blocks);
      if (!is_early && !has_query) {
        send_query(item);
        has_query = true;
      }
      const uint8_t* mine = reinterpret_cast<const uint8_t*>(
          __shfl_sync(~0u, reinterpret_cast<unsigned long long>(source),
                      begin % 32 + lane));
      send_group(mine, count);
    }
    if (!has_query) send_query(item);
  }
};

}

#endif
