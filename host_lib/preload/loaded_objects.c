/* Reading the tables of loaded libraries: see elf(5), and for DT_GNU_HASH the C library's do_lookup_x(). */
#include "loaded_objects.h"

#include <unistd.h>

static uintptr_t page_of(uintptr_t address)
{
	return address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

/* The loader puts addresses into the table in place of offsets, but not where it cannot write to it. */
static const void *pointer_in(const struct loaded_object *object, const ElfW(Dyn) * entry)
{
	uintptr_t value = entry->d_un.d_ptr;

	return (const void *)(value < object->load ? object->load + value : value);
}

static void read_entry(struct loaded_object *object, const ElfW(Dyn) * entry)
{
	switch (entry->d_tag) {
	case DT_SYMTAB:
		object->symbols = pointer_in(object, entry);
		break;
	case DT_STRTAB:
		object->names = pointer_in(object, entry);
		break;
	case DT_GNU_HASH:
		object->hash = pointer_in(object, entry);
		break;
	case DT_RELA:
		object->relocations = pointer_in(object, entry);
		break;
	case DT_RELASZ:
		object->relocation_count = entry->d_un.d_val / sizeof *object->relocations;
		break;
	case DT_JMPREL:
		object->calls = pointer_in(object, entry);
		break;
	case DT_PLTRELSZ:
		object->call_count = entry->d_un.d_val / sizeof *object->calls;
		break;
	default:
		break;
	}
}

static void read_entries(struct loaded_object *object, const ElfW(Dyn) * entry)
{
	for (; entry && entry->d_tag != DT_NULL; entry++)
		read_entry(object, entry);
	if (!object->symbols || !object->names)
		object->hash = NULL;
}

struct loaded_object loaded_object_of(const struct dl_phdr_info *info)
{
	struct loaded_object object = { .load = info->dlpi_addr, .base = UINTPTR_MAX };
	const ElfW(Dyn) *entries = NULL;

	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;

		if (part->p_type == PT_LOAD) {
			object.base = start < object.base ? start : object.base;
			object.end = end > object.end ? end : object.end;
		} else if (part->p_type == PT_GNU_RELRO) {
			object.read_only = page_of(start);
			object.read_only_end = page_of(end);
		} else if (part->p_type == PT_DYNAMIC) {
			entries = (const void *)start;
		}
	}
	read_entries(&object, entries);
	return object;
}

struct loaded_object loaded_object_in_list(const struct link_map *entry)
{
	struct loaded_object object = { .load = entry->l_addr };

	read_entries(&object, entry->l_ld);
	return object;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* Not the C library's: it may be a sanitizer's that is not ready yet. */
static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

uintptr_t loaded_function(const struct loaded_object *object, const char *name, uintptr_t wanted)
{
	const uint32_t wanted_hash = hash_of(name), *buckets, *chain;
	uint32_t count, first, i;

	if (!object->hash)
		return 0;
	/* buckets, first symbol, words of the filter, shift of the filter; filter, buckets, chain */
	count = object->hash[0];
	first = object->hash[1];
	buckets = object->hash + 4 + object->hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	chain = buckets + count;
	i = count ? buckets[wanted_hash % count] : 0;
	if (i < first)
		return 0;
	for (;; i++) {
		const ElfW(Sym) *symbol = &object->symbols[i];
		uint32_t hash = chain[i - first];

		if ((hash | 1) == (wanted_hash | 1) && symbol->st_shndx != SHN_UNDEF &&
		    (symbol->st_info & 0xf) == STT_FUNC && same(object->names + symbol->st_name, name)) {
			uintptr_t found = object->load + symbol->st_value;

			if (!wanted || found == wanted)
				return found;
		}
		if (hash & 1)
			return 0;
	}
}
