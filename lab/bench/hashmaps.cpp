// Google's hash maps on the job of `elf bench cbt`: count keys of one length. Built by the bench, never by the install.
//
// hashmaps sparse|dense: reads from standard input, after one line "KEY_LENGTH\n", the keys without separators;
// prints {"seconds", "groups", "checksum", "final_bytes", "peak_bytes", "stall_seconds"} as JSON. Keys are read by
// chunks of 65536; only counting them is timed. checksum is the sum of count * count.
#include <sparsehash/dense_hash_map>
#include <sparsehash/sparse_hash_map>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

static double status_bytes(const char* key) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  double bytes = 0;
  while (file && std::fgets(line, sizeof line, file))
    if (!std::strncmp(line, key, std::strlen(key))) bytes = std::atof(line + std::strlen(key) + 1) * 1024;
  if (file) std::fclose(file);
  return bytes;
}

template <class Map>
static int run(Map& map) {
  using clock = std::chrono::steady_clock;
  size_t length = 0;
  if (std::scanf("%zu", &length) != 1 || length == 0) return 2;
  std::getchar();
  std::vector<char> chunk(length * 65536);
  std::fill(chunk.begin(), chunk.end(), 'x');  // resident before the baseline is taken
  double before = status_bytes("VmRSS"), seconds = 0, stall = 0;
  for (size_t got; (got = std::fread(chunk.data(), length, 65536, stdin)) > 0;) {
    auto began = clock::now();
    for (size_t i = 0; i < got; i++) map[std::string(chunk.data() + i * length, length)] += 1;
    double took = std::chrono::duration<double>(clock::now() - began).count();
    seconds += took;
    stall = std::max(stall, took);
  }
  double after = status_bytes("VmRSS"), peak = status_bytes("VmHWM");
  auto began = clock::now();
  uint64_t checksum = 0;
  for (auto& entry : map) checksum += entry.second * entry.second;
  seconds += std::chrono::duration<double>(clock::now() - began).count();
  std::printf(
      "{\"seconds\": %.6f, \"groups\": %zu, \"checksum\": %llu, \"final_bytes\": %.0f, \"peak_bytes\": %.0f, "
      "\"stall_seconds\": %.6f}\n",
      seconds, map.size(), static_cast<unsigned long long>(checksum), after - before, peak - before, stall);
  return 0;
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  if (!std::strcmp(arguments[1], "sparse")) {
    google::sparse_hash_map<std::string, uint64_t, std::hash<std::string>> map;
    return run(map);
  }
  google::dense_hash_map<std::string, uint64_t, std::hash<std::string>> map;
  map.set_empty_key("");
  return run(map);
}
