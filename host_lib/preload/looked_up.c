/*
 * Functions that a program looks up in the C library itself: dlsym() with a library's handle, as foreign function
 * interfaces do (Python's ctypes.CDLL("libc.so.6"), JNA and JNR of Java, DllImport("libc") of .NET). It gets the
 * interposer's function instead, if there is one. A library that has a function of this name itself, and looks for the
 * one to call from there, gets the C library's: ours might call the library's again.
 *
 * The next dlsym() is found in the loader's list of libraries, by reading. It cannot be asked for, and functions such
 * as dl_iterate_phdr() may belong to a sanitizer that is not ready yet.
 */
#include "preload.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include "loaded_objects.h"

typedef void *look_up(void *restrict library, const char *restrict name);
typedef void *look_up_version(void *restrict library, const char *restrict name, const char *restrict version);

/* They are the same for all threads and all times. */
static look_up *_Atomic next_look_up;
static look_up_version *_Atomic next_look_up_version;
static struct loaded_object ours, c_library;

static void find_next(void)
{
	uintptr_t plain = 0, version = 0;
	struct loaded_object self = { 0 }, library = { 0 };

	for (const struct link_map *entry = _r_debug.r_map; entry; entry = entry->l_next) {
		struct loaded_object object = loaded_object_in_list(entry);

		if (!self.hash) {
			if (entry->l_ld == _DYNAMIC)
				self = object;
			continue;
		}
		plain = plain ? plain : loaded_function(&object, "dlsym", 0);
		version = version ? version : loaded_function(&object, "dlvsym", 0);
		if (loaded_function(&object, "gnu_get_libc_version", (uintptr_t)gnu_get_libc_version))
			library = object;
	}
	ours = self;
	c_library = library;
	next_look_up_version = (look_up_version *)version;
	next_look_up = (look_up *)plain;
}

/* Does the library of this code have a function of this name? */
static bool has_its_own(const void *code, const char *name)
{
	struct link_map *entry;
	struct loaded_object object;
	Dl_info info;

	if (!dladdr1(code, &info, (void **)&entry, RTLD_DL_LINKMAP))
		return false;
	object = loaded_object_in_list(entry);
	return loaded_function(&object, name, 0) != 0;
}

static void *ours_for(void *found, const char *name, const void *caller)
{
	uintptr_t here;

	if (!found)
		return NULL;
	here = loaded_function(&ours, name, 0);
	if (!here || !loaded_function(&c_library, name, (uintptr_t)found) || has_its_own(caller, name))
		return found;
	return (void *)here;
}

static bool is_of_an_order(const void *library)
{
	return library == RTLD_DEFAULT || library == RTLD_NEXT;
}

/*
 * RTLD_NEXT is about who calls, which the C library sees at the place to return to: so it is called in place of ours (a
 * sibling call), and not by it. The compiler makes one where it optimizes.
 */
#if defined(__clang__)
#define IN_PLACE_OF_OURS __attribute__((musttail)) return
#define SIBLING_CALLS
#else
#define IN_PLACE_OF_OURS return
#define SIBLING_CALLS __attribute__((optimize("O2")))
#endif

SIBLING_CALLS EXPORT void *dlsym(void *restrict library, const char *restrict name)
{
	look_up *next = next_look_up;

	if (!next) {
		find_next();
		next = next_look_up;
	}
	if (is_of_an_order(library))
		IN_PLACE_OF_OURS next(library, name);
	return ours_for(next(library, name), name, __builtin_return_address(0));
}

SIBLING_CALLS EXPORT void *dlvsym(void *restrict library, const char *restrict name, const char *restrict version)
{
	look_up_version *next = next_look_up_version;

	if (!next) {
		find_next();
		next = next_look_up_version;
	}
	if (is_of_an_order(library))
		IN_PLACE_OF_OURS next(library, name, version);
	return ours_for(next(library, name, version), name, __builtin_return_address(0));
}
