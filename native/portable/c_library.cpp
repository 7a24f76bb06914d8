#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#ifdef DLFO_STRUCT_HAS_EH_DBASE

namespace {

struct Search {
  ElfW(Addr) address;
  dl_find_object* found;
};

int visit(dl_phdr_info* object, std::size_t, void* argument) {
  const Search* search = static_cast<Search*>(argument);
  dl_find_object& found = *search->found;
  bool holds_address = false;
  found = {};
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) & segment = object->dlpi_phdr[i];
    const ElfW(Addr) begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME)
      found.dlfo_eh_frame = reinterpret_cast<void*>(begin);
    if (segment.p_type != PT_LOAD || search->address - begin >= segment.p_memsz)
      continue;
    holds_address = true;
    found.dlfo_map_start = reinterpret_cast<void*>(begin);
    found.dlfo_map_end = reinterpret_cast<void*>(begin + segment.p_memsz);
  }
  return holds_address;
}

}

extern "C" int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search = {reinterpret_cast<ElfW(Addr)>(address), found};
  const bool is_loaded = dl_iterate_phdr(visit, &search) == 1;
  return is_loaded && found->dlfo_eh_frame != nullptr ? 0 : -1;
}

#endif

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
  return value;
}
