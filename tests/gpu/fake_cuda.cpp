// CUDA's runtime and driver on a processor, as far as TVM's runtime calls them.
//
// Built as libcudart.so.13. Device memory has addresses that the processor may not touch. Work is queued in
// streams and runs at the last moment, when something waits for it, so that a wait that is missing shows.
// What `fake_nvcc` makes of CUDA C++ is the machine code.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

const int ok = 0, invalid_value = 1, out_of_memory = 2, not_found = 500, illegal_address = 700;

struct Stream;

struct Event {
  Stream* stream = nullptr;
  uint64_t number = 0;  // of the record that was made last
  uint64_t passed = 0;
  std::chrono::steady_clock::time_point time;
};

struct Work {
  std::function<int()> run;
  Event* awaited = nullptr;
  uint64_t number = 0;

  bool is_ready() const { return awaited == nullptr || awaited->passed >= number; }
};

struct Stream {
  bool waits_for_default = true;
  std::deque<Work> queue;
};

struct Block {
  size_t size;
  char* content;  // null for pinned memory, which the processor sees, too
};

struct Function {
  void* code;
  int arguments;
};

std::recursive_mutex one_at_a_time;
std::map<uintptr_t, Block> device_blocks, pinned_blocks;
std::set<Stream*> streams;
Stream default_stream;
size_t allocated, total = size_t{1} << 30;
thread_local int last_error;

int fail(int error) { return last_error = error; }

void start_progress();

// Does the next work of a stream, or of the one that it waits for.
int advance(Stream* stream) {
  while (!stream->queue.front().is_ready()) stream = stream->queue.front().awaited->stream;
  Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  return work.run ? work.run() : ok;
}

int drain(Stream* stream) {
  int result = ok;
  while (!stream->queue.empty())
    if (int error = advance(stream)) result = error;
  return result;
}

// The default stream and blocking streams take turns.
Stream* begin(void* given) {
  if (given != nullptr) {
    auto* stream = static_cast<Stream*>(given);
    if (stream->waits_for_default) drain(&default_stream);
    return stream;
  }
  for (Stream* other : streams)
    if (other->waits_for_default) drain(other);
  return &default_stream;
}

const std::pair<const uintptr_t, Block>* block_of(const std::map<uintptr_t, Block>& blocks, uintptr_t address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  const auto& found = *std::prev(after);
  return address <= found.first + found.second.size ? &found : nullptr;
}

// Where the content of device memory is; null for other addresses.
char* content_at(const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const auto* found = block_of(device_blocks, number);
  return found ? found->second.content + (number - found->first) : nullptr;
}

bool is_pinned(const void* address) {
  return block_of(pinned_blocks, reinterpret_cast<uintptr_t>(address)) != nullptr;
}

// Once there are streams, one of them goes on a bit every now and then, as the processor may wait for it.
void start_progress() {
  static std::thread progress([] {
    std::minstd_rand random;
    for (;;) {
      std::this_thread::sleep_for(std::chrono::microseconds(200 + random() % 2000));
      std::lock_guard guard(one_at_a_time);
      std::vector<Stream*> all(streams.begin(), streams.end());
      all.push_back(&default_stream);
      Stream* chosen = all[random() % all.size()];
      if (!chosen->queue.empty()) advance(chosen);
    }
  });
  static const bool is_alone = (progress.detach(), true);
  (void)is_alone;
}

}  // namespace

extern "C" {

char* fake_content_at(const void* address) {
  std::lock_guard guard(one_at_a_time);
  return content_at(address);
}

int cudaGetLastError() { int error = last_error; last_error = ok; return error; }
int cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(int error) { return error == out_of_memory ? "cudaErrorMemoryAllocation" : "cudaError"; }
const char* cudaGetErrorString(int error) {
  return error == out_of_memory ? "out of memory" : error == illegal_address ? "illegal address" : "fake CUDA";
}
int cuGetErrorName(int error, const char** name) { *name = cudaGetErrorName(error); return ok; }
int cuGetErrorString(int error, const char** text) { *text = cudaGetErrorString(error); return ok; }

int cudaGetDeviceCount(int* count) { *count = 1; return ok; }
int cudaGetDevice(int* device) { *device = 0; return ok; }
int cudaSetDevice(int device) { return device == 0 ? ok : fail(101); }
int cuDeviceGetName(char* name, int size, int) { std::snprintf(name, size, "Fake GPU"); return ok; }

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  static const std::map<int, int> known = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {8, 49152}, {10, 32}, {12, 65536}, {13, 1000000},
      {16, 4}, {38, 1 << 20}, {75, 9}, {76, 0}, {97, 49152}};
  if (device != 0) return fail(101);
  auto found = known.find(attribute);
  *value = found == known.end() ? 0 : found->second;
  return ok;
}

int cudaGetDeviceProperties(void* properties, int) {
  std::memset(properties, 0, 296);
  std::memcpy(static_cast<char*>(properties) + 288, &total, sizeof total);
  return ok;
}

int cudaMemGetInfo(size_t* free, size_t* all) { *free = total - allocated; *all = total; return ok; }

int cudaMalloc(void** address, size_t size) {
  std::lock_guard guard(one_at_a_time);
  if (size > total - allocated) return fail(out_of_memory);
  void* seen = mmap(nullptr, size + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* content = nullptr;
  if (seen == MAP_FAILED || posix_memalign(&content, 256, size + 1)) return fail(out_of_memory);
  std::memset(content, 0xEE, size);
  device_blocks[reinterpret_cast<uintptr_t>(seen)] = {size, static_cast<char*>(content)};
  allocated += size;
  *address = seen;
  return ok;
}

int cudaFree(void* address) {
  std::lock_guard guard(one_at_a_time);
  if (address == nullptr) return ok;
  for (Stream* stream : streams) drain(stream);
  drain(&default_stream);
  auto found = device_blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == device_blocks.end()) return fail(invalid_value);
  munmap(address, found->second.size + 1);
  std::free(found->second.content);
  allocated -= found->second.size;
  device_blocks.erase(found);
  return ok;
}

int cudaMallocHost(void** address, size_t size) {
  std::lock_guard guard(one_at_a_time);
  if (posix_memalign(address, 256, size + 1)) return fail(out_of_memory);
  pinned_blocks[reinterpret_cast<uintptr_t>(*address)] = {size, nullptr};
  return ok;
}

int cudaFreeHost(void* address) {
  std::lock_guard guard(one_at_a_time);
  for (Stream* stream : streams) drain(stream);
  drain(&default_stream);
  pinned_blocks.erase(reinterpret_cast<uintptr_t>(address));
  std::free(address);
  return ok;
}

int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  std::lock_guard guard(one_at_a_time);
  start_progress();
  auto* made = new Stream;
  made->waits_for_default = !(flags & 1);
  streams.insert(made);
  *stream = made;
  return ok;
}
int cudaStreamCreate(void** stream) { return cudaStreamCreateWithFlags(stream, 0); }

int cudaStreamSynchronize(void* stream) {
  std::lock_guard guard(one_at_a_time);
  if (int error = drain(begin(stream))) return fail(error);
  return ok;
}

int cudaDeviceSynchronize() {
  std::lock_guard guard(one_at_a_time);
  int result = drain(&default_stream);
  for (Stream* stream : streams)
    if (int error = drain(stream)) result = error;
  return result ? fail(result) : ok;
}

int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  std::lock_guard guard(one_at_a_time);
  begin(stream)->queue.push_back({[=] { function(argument); return ok; }});
  return ok;
}

int cudaStreamDestroy(void* stream) {
  cudaStreamSynchronize(stream);
  std::lock_guard guard(one_at_a_time);
  streams.erase(static_cast<Stream*>(stream));
  delete static_cast<Stream*>(stream);
  return ok;
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void* given) {
  std::lock_guard guard(one_at_a_time);
  Stream* stream = begin(given);
  char *to_content = content_at(to);
  const char *from_content = content_at(from);
  if (to_content && from_content) {
    stream->queue.push_back({[=] { std::memmove(to_content, from_content, size); return ok; }});
  } else if (to_content) {
    if (is_pinned(from)) {
      stream->queue.push_back({[=] { std::memcpy(to_content, from, size); return ok; }});
    } else {  // goes through memory of the driver
      auto staged = std::make_shared<std::string>(static_cast<const char*>(from), size);
      stream->queue.push_back({[=] { std::memcpy(to_content, staged->data(), size); return ok; }});
    }
  } else if (from_content) {
    stream->queue.push_back({[=] { std::memcpy(to, from_content, size); return ok; }});
    if (!is_pinned(to)) return drain(stream) ? fail(illegal_address) : ok;
  } else {
    stream->queue.push_back({[=] { std::memmove(to, from, size); return ok; }});
  }
  return ok;
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void* stream) {
  return cudaMemcpyAsync(to, from, size, 0, stream);
}

int cudaEventCreate(void** event) { *event = new Event; return ok; }
int cudaEventCreateWithFlags(void** event, unsigned) { return cudaEventCreate(event); }
int cudaEventDestroy(void*) { return ok; }  // queues may still name it
int cudaEventRecord(void* given, void* stream) {
  std::lock_guard guard(one_at_a_time);
  auto* event = static_cast<Event*>(given);
  event->stream = begin(stream);
  const uint64_t number = ++event->number;
  event->stream->queue.push_back({[=] {
    event->passed = number;
    event->time = std::chrono::steady_clock::now();
    return ok;
  }});
  return ok;
}
int cudaStreamWaitEvent(void* stream, void* given, unsigned) {
  std::lock_guard guard(one_at_a_time);
  auto* event = static_cast<Event*>(given);
  if (event->stream != nullptr) begin(stream)->queue.push_back({nullptr, event, event->number});
  return ok;
}
int cudaEventSynchronize(void* given) {
  std::lock_guard guard(one_at_a_time);
  auto* event = static_cast<Event*>(given);
  return event->stream != nullptr && drain(event->stream) ? fail(illegal_address) : ok;
}
int cudaEventElapsedTime(float* ms, void* begin, void* end) {
  const auto passed = static_cast<Event*>(end)->time - static_cast<Event*>(begin)->time;
  *ms = std::chrono::duration<float, std::milli>(passed).count();
  return ok;
}

// An image is "FAKE", its size in eight bytes, and a shared library.
int cuModuleLoadData(void** module, const void* image) {
  std::lock_guard guard(one_at_a_time);
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "FAKE", 4)) return fail(invalid_value);
  uint64_t size;
  std::memcpy(&size, bytes + 4, sizeof size);
  char path[] = "/tmp/fake_cuda_XXXXXX";
  const int file = mkstemp(path);
  const bool is_written = write(file, bytes + 12, size) == static_cast<ssize_t>(size);
  close(file);
  *module = is_written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (*module == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  unlink(path);
  return *module ? ok : fail(invalid_value);
}
int cuModuleUnload(void*) { return ok; }

int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* count = static_cast<const int*>(dlsym(module, (std::string(name) + "_arguments").c_str()));
  if (count == nullptr) return fail(not_found);
  // It leads to the library that holds the scheduler of its threads.
  *function = new std::pair<void*, Function>{module, {dlsym(module, name), *count}};
  return ok;
}
int cuFuncSetAttribute(void*, int, int) { return ok; }

struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

int cuLaunchKernelEx(const LaunchConfig* config, void* given, void** parameters, void**) {
  std::lock_guard guard(one_at_a_time);
  const auto& [module, function] = *static_cast<std::pair<void*, Function>*>(given);
  std::vector<void*> arguments(16, nullptr);
  for (int i = 0; i < function.arguments; ++i) {
    void* address;
    std::memcpy(&address, parameters[i], sizeof address);
    arguments[i] = content_at(address);
    if (arguments[i] == nullptr && address != nullptr) return fail(illegal_address);
  }
  std::vector<int> shape;
  for (unsigned size : config->grid) shape.push_back(size);
  for (unsigned size : config->block) shape.push_back(size);
  using Run = void (*)(void*, void**, const int*);
  const auto run = reinterpret_cast<Run>(dlsym(module, "run_launch"));
  void* code = function.code;
  begin(config->stream)->queue.push_back({[=]() mutable {
    run(code, arguments.data(), shape.data());
    return ok;
  }});
  return ok;
}

// Graphs and tensor maps are not used.
int cudaGraphDestroy(void*) { return invalid_value; }
int cudaGraphExecDestroy(void*) { return invalid_value; }
int cudaGraphInstantiate(void**, void*, unsigned long long) { return invalid_value; }
int cudaGraphLaunch(void*, void*) { return invalid_value; }
int cudaStreamBeginCapture(void*, int) { return invalid_value; }
int cudaStreamEndCapture(void*, void**) { return invalid_value; }
int cuTensorMapEncodeTiled(...) { return invalid_value; }

}  // extern "C"
