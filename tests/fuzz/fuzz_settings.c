/*
 * libFuzzer target: the reader of the file of settings. The input is a file. What is refused must be so with a place in
 * the file and a printable message, and nothing of it taken; what is taken has values that the declaration allows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ensure.h"
#include "settings/environment.h"
#include "settings/settings_file.h"

static void check_fault(const struct xts_settings_fault *fault, const uint8_t *data, size_t bytes)
{
	size_t line = 1, column = 1, at = 0;

	for (; at < bytes && line < fault->line; at++)
		line += data[at] == '\n';
	ENSURE(line == fault->line);
	for (; at < bytes && column < fault->column && data[at] != '\n'; at++)
		column++;
	ENSURE(column == fault->column);
	ENSURE(memchr(fault->text, 0, sizeof fault->text));
	for (const char *c = fault->text; *c; c++)
		ENSURE(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct xts_settings_file file;
	char *text = malloc(bytes ? bytes : 1); /* not terminated, for AddressSanitizer */
	int r;

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	r = xts_settings_file_parse(&file, text, bytes);
	free(text); /* nothing of it may be kept */
	ENSURE(!r == !file.count);
	ENSURE(!r || r == -EINVAL);
	for (unsigned i = 0; i < file.count && i < XTS_SETTINGS_FAULTS; i++)
		check_fault(&file.fault[i], data, bytes);
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		ENSURE(!file.values[i] || !r);
		ENSURE(!file.values[i] || (file.lines[i] && xts_variable_takes(i, file.values[i])));
	}
	xts_settings_file_free(&file);
	return 0;
}
