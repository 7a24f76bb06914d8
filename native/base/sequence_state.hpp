#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/base/host_device.hpp"
#include "native/base/mixed_bits.hpp"

namespace glm {

GLM_HOST_DEVICE inline int32_t known_id(int32_t id) { return id < 0 ? 0 : id; }

GLM_HOST_DEVICE inline int32_t draft_of_row(const glm_begin_step_args& args,
                                            const glm_sequence_state& state,
                                            int32_t row) {
  const int32_t id = args.continuation[int64_t{row} * args.continuation_stride +
                                       state.num_accepted];
  return id < 0 ? state.draft_id : id;
}

GLM_HOST_DEVICE inline void begin_row(const glm_begin_step_args& args,
                                      int32_t row) {
  if (args.source_rows[row] < 0) return;
  const int32_t table_row = args.table_row[row];
  const int32_t offset = args.row_offset[row];
  const int32_t last = args.position_limit[row] - 1;
  const glm_sequence_state state = args.states[table_row];
  const int32_t wanted = state.length - 1 + offset;
  const int32_t position = wanted < last ? wanted : last;
  const int32_t page =
      args.page_table[int64_t{table_row} * args.page_table_stride +
                      position / args.page_size];
  args.token_ids[row] =
      known_id(offset == 0 ? state.last_id : draft_of_row(args, state, row));
  args.positions[row] = position;
  args.slots[row] =
      wanted > last ? -1 : page * args.page_size + position % args.page_size;
  args.context_length[row] = position + 1;
  args.position[row] = position + 1;
}

GLM_HOST_DEVICE inline bool is_drafted(const glm_accept_args& args,
                                       int32_t first, int32_t row) {
  return row < args.num_rows && args.row_offset[row] == row - first &&
         args.state_row[row] == args.state_row[first] &&
         args.position[row] == args.position[first] + row - first;
}

GLM_HOST_DEVICE inline bool is_forced(const glm_accept_args& args, int32_t row,
                                      int32_t draft) {
  const uint64_t place = static_cast<uint64_t>(args.position[row]) << 32 |
                         static_cast<uint32_t>(draft);
  const uint64_t bits =
      mixed(mixed(args.seed[row] * kGolden + 1) ^ (place * kGolden));
  return static_cast<float>(bits >> 40) * 0x1p-24f < args.acceptance_rate;
}

GLM_HOST_DEVICE inline int32_t forced_id(const glm_accept_args& args,
                                         int32_t row) {
  const int32_t draft = args.input_ids[row + 1];
  const int32_t sampled = args.sampled_ids[row];
  if (is_forced(args, row, draft)) return draft;
  return sampled == draft ? (draft + 1) % args.vocab_size : sampled;
}

GLM_HOST_DEVICE inline bool takes_draft(const glm_accept_args& args,
                                        int32_t first, int32_t row) {
  if (!is_drafted(args, first, row + 1)) return false;
  const int32_t draft = args.input_ids[row + 1];
  if (args.acceptance_rate >= 0) args.sampled_ids[row] = forced_id(args, row);
  return args.sampled_ids[row] == draft;
}

struct AddOne {
  GLM_HOST_DEVICE void operator()(uint32_t* count) const { ++*count; }
};

template <typename Add>
GLM_HOST_DEVICE inline void count_sampled(const glm_accept_args& args,
                                          int32_t row, Add add) {
  const int64_t count_row = args.count_row[row];
  const int32_t token = args.sampled_ids[row];
  if (count_row < 0 || count_row >= args.num_table_rows) return;
  if (token < 0 || token >= args.vocab_size) return;
  add(args.counts + count_row * args.vocab_size + token);
}

template <typename Add = AddOne>
GLM_HOST_DEVICE inline void accept_sequence(const glm_accept_args& args,
                                            int32_t first, Add add = {}) {
  const int32_t state_row = args.state_row[first];
  if (args.row_offset[first] != 0) return;
  if (state_row < 0 || state_row >= args.num_table_rows) return;
  int32_t row = first;
  while (takes_draft(args, first, row)) count_sampled(args, row++, add);
  count_sampled(args, row, add);
  args.states[state_row] = {args.position[row] + 1, args.sampled_ids[row],
                            row - first, -1};
}

GLM_HOST_DEVICE inline void follow_row(const glm_begin_drafts_args& args,
                                       int32_t row) {
  const int32_t next = args.next_ids[row];
  args.token_ids[row] = known_id(next < 0 ? args.sampled_ids[-1 - next] : next);
}

GLM_HOST_DEVICE inline void begin_draft(const glm_begin_drafts_args& args,
                                        int32_t draft) {
  const int32_t first = args.draft_rows[draft];
  const int32_t state_row = args.state_row[first];
  const glm_sequence_state state = args.states[state_row];
  const int32_t row = args.logit_rows[first + state.num_accepted];
  args.rows[draft] = row;
  args.table_row[draft] = state_row;
  args.context_length[draft] = args.positions[row] + 1;
  args.position[draft] = state.length;
}

GLM_HOST_DEVICE inline void keep_draft(const glm_keep_drafts_args& args,
                                       int32_t draft) {
  const int32_t state_row = args.state_row[args.draft_rows[draft]];
  args.states[state_row].draft_id = args.draft_ids[draft];
}

}
