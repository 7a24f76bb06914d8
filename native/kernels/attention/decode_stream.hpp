#ifndef GLM_KERNELS_ATTENTION_DECODE_STREAM_HPP
#define GLM_KERNELS_ATTENTION_DECODE_STREAM_HPP

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
  const Arguments& args;
  Shared<S>& shared;
  int32_t lane;
  bool has_waited = false;
  RingCursor<S> ring;
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
    query.template advance<1>();
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

  __device__ void send_blocks(const uint8_t* source, int32_t first,
                              int32_t begin, int32_t end) {
    const int32_t place = lane - first;
    if (place >= begin && place < end)
      ptx::bulk_copy(shared.ring[ring.place.slot][place], source,
                     S::kBlockBytes, &shared.full[ring.arrival.slot],
                     ptx::kEvictFirst);
  }

  __device__ void send_stage(const Item& item, const uint8_t* source,
                             int32_t first, int32_t count, bool has_newest,
                             bool& has_query) {
    ptx::barrier_wait(&shared.empty[ring.place.slot], ring.place.parity ^ 1);
    if (lane == 0)
      ptx::barrier_expect(&shared.full[ring.arrival.slot],
                          count * S::kBlockBytes);
    __syncwarp();
    const int32_t early = has_newest && !has_waited ? count - 1 : count;
    send_blocks(source, first, 0, early);
    if (early < count) {
      send_query(item);
      has_query = true;
      send_blocks(source, first, early, count);
    }
    ring.advance(1);
  }

  __device__ void send_item(const Item& item, int32_t page) {
    const int32_t num_blocks = item.num_blocks();
    bool has_query = has_waited;
    if (has_waited) send_query(item);
    for (int32_t begin = 0; begin < num_blocks; begin += 32) {
      const uint8_t* source = source_of_lane(item, begin, page);
      page = page_of_lane(item, begin + 32);
      const int32_t end = min(begin + 32, num_blocks);
#pragma unroll 1
      for (int32_t block = begin; block < end; block += kStageBlocks) {
        if (!has_query && block >= S::kStages * kStageBlocks) {
          send_query(item);
          has_query = true;
        }
        const int32_t count = min(kStageBlocks, num_blocks - block);
        const bool has_newest =
            item.has_newest() && block + count == num_blocks;
        send_stage(item, source, block - begin, count, has_newest, has_query);
      }
    }
    if (!has_query) send_query(item);
  }
};

}

#endif
