// Runs CUDA C++ on a processor: the threads of a block are fibers that take turns at barriers.
//
// Included where generated code includes <cuda.h>. A fiber runs until it comes to a barrier, so
// code that forgets one reads what other threads have not written yet.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define alignas(bytes) __attribute__((aligned(bytes)))  // which may stand behind `static`

using std::max;
using std::min;

#define VECTORS(type, name)                                                          \
  struct name##2 { type x, y; };                                                     \
  struct name##4 { type x, y, z, w; };                                               \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                   \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned short, ushort)
VECTORS(unsigned char, uchar)
VECTORS(long long, longlong)

struct Place { int x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

inline float __int_as_float(int bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

namespace emulated {

enum class State { ready, at_warp_barrier, at_block_barrier, done };

struct Fiber {
  ucontext_t context;
  State state;
  uint64_t shared_value;
};

static const size_t stack_bytes = 1 << 16;
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static ucontext_t scheduler;
static int current;
static void* function;
static void** arguments;

inline void wait_at(State barrier) {
  fibers[current].state = barrier;
  swapcontext(&fibers[current].context, &scheduler);
}

// A call with more arguments than a function has parameters is harmless in this calling convention.
inline void run_thread() {
  using Kernel = void (*)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                          void*, void*, void*, void*, void*);
  void** a = arguments;
  reinterpret_cast<Kernel>(function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
                                     a[11], a[12], a[13], a[14], a[15]);
  fibers[current].state = State::done;
  swapcontext(&fibers[current].context, &scheduler);
}

inline void place_thread(int number) {
  current = number;
  threadIdx = {number % blockDim.x, number / blockDim.x % blockDim.y,
               number / (blockDim.x * blockDim.y)};
}

// Lets threads pass the barriers that all others have reached, too. False when all are done.
inline bool open_barriers() {
  const int threads = static_cast<int>(fibers.size());
  bool is_any_left = false, is_block_there = true;
  for (const Fiber& fiber : fibers) {
    is_any_left |= fiber.state != State::done;
    is_block_there &= fiber.state == State::done || fiber.state == State::at_block_barrier;
  }
  for (int first = 0; first < threads; first += 32)
    for (int i = first; i < min(first + 32, threads); ++i)
      if (fibers[i].state == State::at_warp_barrier || is_block_there)
        if (fibers[i].state != State::done) fibers[i].state = State::ready;
  return is_any_left;
}

inline void run_block() {
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.state = State::ready;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks.data() + i * stack_bytes;
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_thread, 0);
  }
  do {
    for (size_t i = 0; i < fibers.size(); ++i) {
      if (fibers[i].state != State::ready) continue;
      place_thread(static_cast<int>(i));
      swapcontext(&scheduler, &fibers[i].context);
    }
  } while (open_barriers());
}

// What the thread `lane` of this warp gives, read after all of the warp have given theirs.
template <typename T>
T exchange(T value, int lane, int width) {
  const int mine = current, first = mine / width * width;
  std::memcpy(&fibers[mine].shared_value, &value, sizeof(T));
  wait_at(State::at_warp_barrier);
  const int from = lane >= 0 && lane < width && first + lane < static_cast<int>(fibers.size())
                       ? first + lane
                       : mine;
  T read;
  std::memcpy(&read, &fibers[from].shared_value, sizeof(T));
  wait_at(State::at_warp_barrier);
  return read;
}

}  // namespace emulated

inline void __syncthreads() { emulated::wait_at(emulated::State::at_block_barrier); }
inline void __syncwarp(unsigned = 0) { emulated::wait_at(emulated::State::at_warp_barrier); }
inline unsigned __activemask() { return 0xffffffffu; }

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width) {
  return emulated::exchange(value, lane % width, width);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int offset, int width) {
  return emulated::exchange(value, emulated::current % width + offset, width);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int offset, int width) {
  return emulated::exchange(value, emulated::current % width - offset, width);
}

// Runs a kernel with 16 pointers on a grid; `shape` is its size in blocks, then that of a block.
extern "C" void run_launch(void* function, void** arguments, const int* shape) {
  emulated::function = function;
  emulated::arguments = arguments;
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  emulated::fibers.resize(threads);
  emulated::stacks.resize(threads * emulated::stack_bytes);
  for (int z = 0; z < gridDim.z; ++z)
    for (int y = 0; y < gridDim.y; ++y)
      for (int x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        emulated::run_block();
      }
}
