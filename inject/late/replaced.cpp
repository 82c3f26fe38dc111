#include "inject/late/replaced.h"

#include <cstddef>

#include "inject/imports.h"

namespace torchprof::inject {
namespace {

struct Place {
  void** place;
  void* ours;
  void* theirs;
};
constexpr size_t kMostPlaces = 64, kMostImports = 32;
Place g_places[kMostPlaces];
size_t g_place_count = 0;
Swap g_imports[kMostImports];
size_t g_import_count = 0;

}  // namespace

void note_place(void** place, void* ours, void* theirs) noexcept {
  for (size_t i = 0; i < g_place_count; ++i)
    if (g_places[i].place == place) return;
  if (g_place_count < kMostPlaces) g_places[g_place_count++] = {place, ours, theirs};
}

void note_import(void* ours, void* theirs) noexcept {
  for (size_t i = 0; i < g_import_count; ++i)
    if (g_imports[i].from == ours) return;
  if (theirs && g_import_count < kMostImports) g_imports[g_import_count++] = {ours, theirs};
}

void give_back_places() noexcept {
  for (size_t i = 0; i < g_place_count; ++i)
    if (*g_places[i].place == g_places[i].ours) *g_places[i].place = g_places[i].theirs;
  g_place_count = 0;
  swap_imports(g_imports, g_import_count);
  g_import_count = 0;
}

}  // namespace torchprof::inject
