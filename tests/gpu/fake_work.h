// What fake libraries ask of the fake CUDA: where device memory is, and to run work in the default stream.
#pragma once
#include <functional>

extern "C" char* fake_content_at(const void* address);  // null for other memory
extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* argument);

template <typename T>
T* fake_content(const void* address) {
  return reinterpret_cast<T*>(fake_content_at(address));
}

inline int fake_launch(std::function<void()> work) {
  return cudaLaunchHostFunc(
      nullptr,
      [](void* given) {
        auto* work = static_cast<std::function<void()>*>(given);
        (*work)();
        delete work;
      },
      new std::function<void()>(std::move(work)));
}
