#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using exchange::Call;
using exchange::Rules;
using glm::collectives::RegionShape;
using glm::collectives::Turns;

constexpr int32_t kMostSteps = 4;
constexpr int32_t kMostInGraph = 4;

int32_t any(std::mt19937_64& random, int32_t low, int32_t high) {
  return low +
         static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
}

struct Graph {
  std::vector<int32_t> turns;
  int32_t last;
};

bool read_rules(const std::string& name, Rules& rules) {
  rules.uses_turns = name != "one-buffer";
  rules.producers_wait = name != "early-producers";
  rules.owners_wait = name != "early-owners";
  rules.have_one_order = name != "two-orders";
  rules.all_ranks_own_rows = name != "rowless-ranks";
  rules.readers_precede_parts = name != "late-readers";
  rules.ranks_meet = name != "no-meetings";
  return name == "turns" || !rules.uses_turns || !rules.producers_wait ||
         !rules.owners_wait || !rules.have_one_order ||
         !rules.all_ranks_own_rows || !rules.readers_precede_parts ||
         !rules.ranks_meet;
}

Graph captured(Turns& turns, int32_t count) {
  Graph graph;
  turns.begin_graph();
  for (int32_t i = 0; i < count; ++i) graph.turns.push_back(turns.next());
  graph.last = turns.end_graph();
  return graph;
}

void add_call(std::vector<Call>& calls, const RegionShape& region,
              std::mt19937_64& random, const Rules& rules, int32_t num_rows,
              int32_t turn) {
  num_rows = std::min(num_rows, region.rows_of(turn));
  const bool is_sent_ahead = any(random, 0, 1) == 1;
  const bool has_owners = any(random, 0, 1) == 1;
  const bool may_scatter =
      num_rows >= region.world_size || !rules.all_ranks_own_rows;
  const bool is_scattered = has_owners && may_scatter && any(random, 0, 1) == 1;
  const bool has_codes = is_scattered && any(random, 0, 1) == 1;
  calls.push_back({num_rows, turn, is_sent_ahead || is_scattered, has_owners,
                   is_scattered, has_codes});
}

std::vector<Call> calls_of(std::mt19937_64& random, const RegionShape& region,
                           const Rules& rules) {
  Turns turns;
  const Graph graphs[] = {captured(turns, any(random, 2, kMostInGraph)),
                          captured(turns, any(random, 2, kMostInGraph))};
  std::vector<Call> calls;
  const int32_t num_steps = any(random, 1, kMostSteps);
  for (int32_t step = 0; step < num_steps; ++step) {
    const int32_t num_rows = any(random, 1, exchange::kMostRows);
    const int32_t kind = any(random, 0, 2);
    if (kind == 2) {
      const int32_t count = any(random, 1, kMostInGraph);
      for (int32_t i = 0; i < count; ++i)
        add_call(calls, region, random, rules, num_rows, turns.next());
      continue;
    }
    for (const int32_t turn : graphs[kind].turns)
      add_call(calls, region, random, rules, num_rows, turn);
    turns.replay(graphs[kind].last);
  }
  if (!rules.uses_turns)
    for (Call& call : calls) call.turn = 0;
  return calls;
}

int fail(const std::string& fault, uint64_t seed) {
  std::printf("schedule %llu: %s\n", static_cast<unsigned long long>(seed),
              fault.c_str());
  return 1;
}

}

int main(int argc, char** argv) {
  Rules rules = {};
  if (argc != 4 || !read_rules(argv[3], rules)) {
    std::printf(
        "usage: exchange SCHEDULES SEED turns|one-buffer|early-producers|"
        "early-owners|two-orders|rowless-ranks|late-readers|no-meetings\n");
    return 2;
  }
  const uint64_t count = std::strtoull(argv[1], nullptr, 10);
  const uint64_t first = std::strtoull(argv[2], nullptr, 10);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const int32_t world_size = 1 << any(random, 1, 3);
    const RegionShape region = {world_size, exchange::kMostRows,
                                any(random, 1, exchange::kMostRows)};
    exchange::Ranks ranks(region, calls_of(random, region, rules), rules,
                          random());
    const std::string fault = ranks.run();
    if (!fault.empty()) return fail(fault, seed);
  }
  std::printf("%llu schedules without a fault\n",
              static_cast<unsigned long long>(count));
  return 0;
}
