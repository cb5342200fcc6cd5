/* The symbols of the libraries that a process has loaded, read from memory: nothing here allocates, and nothing takes
 * the loader's locks, so it may be called while they are held. */
#ifndef XTS_PRELOAD_LOADED_OBJECTS_H
#define XTS_PRELOAD_LOADED_OBJECTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loaded_object {
	uintptr_t load;      /* what is added to each address in its file */
	uintptr_t base, end; /* its memory */
	const ElfW(Sym) * symbols;
	const char *names;
	const uint32_t *hash; /* DT_GNU_HASH; NULL: it has none, and no symbol is found */
	const ElfW(Rela) * relocations, *calls;
	size_t relocation_count, call_count;
	uintptr_t read_only, read_only_end; /* what the loader has protected, in whole pages */
};

/* What dl_iterate_phdr() tells of one, and what the loader's list does: without `base`, `end` and `read_only`. */
struct loaded_object loaded_object_of(const struct dl_phdr_info *info);
struct loaded_object loaded_object_in_list(const struct link_map *entry);
static inline bool loaded_object_has(const struct loaded_object *object, uintptr_t address)
{
	return address >= object->base && address < object->end;
}
/* The address of a function that the library offers under this name, in any version: of the first, or, if `wanted` is
 * not 0, of that one. 0: there is none. */
uintptr_t loaded_function(const struct loaded_object *object, const char *name, uintptr_t wanted);

#endif
