/*
 * Wipes OpenSSL's memory when it is freed. OpenSSL 3.0 itself does so for keys and private numbers, but not for a
 * connection's struct, which has the traffic secrets of TLS 1.3, nor for what it encodes into tickets, which has the
 * master secret. With these, an attacker could decrypt recorded traffic later.
 *
 * What it allocates for the keys of our record layer is in the memory for keys (tls_keys/key_memory.h).
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "tls_config.h"
#include "ulp/tls_keys/key_memory.h"

/* larger blocks are record buffers, which hold no secrets and are allocated and freed with each burst of data */
#define WIPED_MAX 16384u

static void *allocate(size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return key_memory_is_meant() ? key_memory_take(bytes) : malloc(bytes);
}

static void give_back(void *block, const char *file, int line)
{
	size_t bytes;

	(void)file;
	(void)line;
	if (key_memory_has(block)) {
		key_memory_give(block);
		return;
	}
	bytes = malloc_usable_size(block); /* 0 for NULL */
	if (bytes && bytes <= WIPED_MAX)
		explicit_bzero(block, bytes);
	free(block);
}

/* As realloc(), but wipes the old block when it moves. With 0 bytes it frees the block, as
 * OpenSSL's own function does. */
static void *resize(void *block, size_t bytes, const char *file, int line)
{
	size_t before = key_memory_has(block) ? key_memory_bytes(block) : malloc_usable_size(block);
	void *moved = bytes ? allocate(bytes, file, line) : NULL;

	if (bytes && !moved)
		return NULL;
	if (moved && before)
		memcpy(moved, block, before < bytes ? before : bytes);
	give_back(block, file, line);
	return moved;
}

bool xts_tls_wipe_memory(void)
{
	return CRYPTO_set_mem_functions(allocate, resize, give_back) == 1;
}
