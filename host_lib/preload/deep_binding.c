/*
 * Libraries that a program loads with RTLD_DEEPBIND, as PHP does its extensions, and Apache its modules.
 *
 * The loader looks for what such a library calls in the library itself, and in those that it needs, before it looks at
 * the interposer. So its calls would go to the C library, past the interposer: its new sockets would stay with the
 * kernel unnoticed, and on an offloaded one it would act on the kernel's socket that keeps the number.
 *
 * What the program asked for stays in force for all other names. When the library has been loaded, each place where it,
 * or a library that came with it, keeps the address of a function of the C library which the interposer has too is
 * given ours. A place that has not been used yet, for the loader looks up most functions at their first call, belongs
 * to a name that the library does not offer itself.
 *
 * Not done: what a library's constructors call is called before that. dlmopen() into another namespace loads a second C
 * library, of which this one knows nothing.
 */
#include "preload.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <string.h>
#include <sys/mman.h>

#include "loaded_objects.h"

#if defined(__x86_64__)
#define CALLED R_X86_64_JUMP_SLOT
#define POINTED_AT R_X86_64_GLOB_DAT
#define KEPT R_X86_64_64
#elif defined(__aarch64__)
#define CALLED R_AARCH64_JUMP_SLOT
#define POINTED_AT R_AARCH64_GLOB_DAT
#define KEPT R_AARCH64_ABS64
#else
#error "which relocations keep the address of a function?"
#endif

#define KNOWN_MAX 1024u /* libraries; those beyond are looked at again, which changes nothing */

struct look {
	struct loaded_object ours, c_library;
	uintptr_t known[KNOWN_MAX]; /* where those are that were there before */
	size_t known_count;
};

static int note_known(struct dl_phdr_info *info, size_t bytes, void *argument)
{
	struct look *look = argument;
	struct loaded_object object = loaded_object_of(info);

	(void)bytes;
	if (loaded_object_has(&object, (uintptr_t)&preload))
		look->ours = object;
	if (loaded_object_has(&object, (uintptr_t)gnu_get_libc_version))
		look->c_library = object;
	if (look->known_count < KNOWN_MAX)
		look->known[look->known_count++] = object.base;
	return 0;
}

/* liburing's functions, which the C library does not have. If a program may use io_uring, it calls them itself. */
static bool is_of_rings(const char *name)
{
	return !strncmp(name, "io_uring_", strlen("io_uring_"));
}

/* The function of ours that belongs into a place of this name, which has this address now; 0: none. */
static uintptr_t replacement(const struct look *look, const struct loaded_object *object, const ElfW(Sym) * symbol,
			     uintptr_t now, bool called)
{
	const char *name = object->names + symbol->st_name;
	bool unused = called && symbol->st_shndx == SHN_UNDEF && loaded_object_has(object, now);
	uintptr_t ours = loaded_function(&look->ours, name, 0);

	if (!ours || ours == now)
		return 0;
	if (is_of_rings(name))
		return symbol->st_shndx == SHN_UNDEF && !preload_allows_io_uring() ? ours : 0;
	return loaded_function(&look->c_library, name, unused ? 0 : now) ? ours : 0;
}

static void put(const struct loaded_object *object, uintptr_t *place, uintptr_t function)
{
	uintptr_t at = (uintptr_t)place;
	bool protected = at >= object->read_only && at < object->read_only_end;
	size_t bytes = object->read_only_end - object->read_only;

	if (protected && mprotect((void *)object->read_only, bytes, PROT_READ | PROT_WRITE))
		return;
	__atomic_store_n(place, function, __ATOMIC_RELEASE);
	if (protected)
		(void)mprotect((void *)object->read_only, bytes, PROT_READ);
}

static void put_ours(const struct look *look, const struct loaded_object *object, const ElfW(Rela) * relocations,
		     size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const ElfW(Rela) *relocation = &relocations[i];
		unsigned kind = (unsigned)ELF64_R_TYPE(relocation->r_info);
		uintptr_t *place = (uintptr_t *)(object->load + relocation->r_offset);
		uintptr_t function;

		if (kind != CALLED && kind != POINTED_AT && !(kind == KEPT && !relocation->r_addend))
			continue;
		function = replacement(look, object, &object->symbols[ELF64_R_SYM(relocation->r_info)], *place,
				       kind == CALLED);
		if (function)
			put(object, place, function);
	}
}

static int mend_new(struct dl_phdr_info *info, size_t bytes, void *argument)
{
	const struct look *look = argument;
	struct loaded_object object = loaded_object_of(info);

	(void)bytes;
	for (size_t i = 0; i < look->known_count; i++)
		if (look->known[i] == object.base)
			return 0;
	if (!object.hash || loaded_object_has(&object, (uintptr_t)&preload))
		return 0;
	put_ours(look, &object, object.relocations, object.relocation_count);
	put_ours(look, &object, object.calls, object.call_count);
	return 0;
}

static void *load_deep(const char *file, int mode)
{
	struct look look = { .known_count = 0 };
	void *library;

	dl_iterate_phdr(note_known, &look);
	library = real()->dlopen(file, mode);
	if (library)
		dl_iterate_phdr(mend_new, &look);
	return library;
}

/* The C library looks at who has called it, for the paths of that library: so it is called in place of ours (a sibling
 * call), and not by it. */
EXPORT void *dlopen(const char *file, int mode)
{
	if (mode & RTLD_DEEPBIND)
		return load_deep(file, mode);
	return real()->dlopen(file, mode);
}
