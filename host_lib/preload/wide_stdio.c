/*
 * Wide characters on the streams of stdio.c. The C library's streams with functions (fopencookie) are for bytes only:
 * where they were to become wide, their jump table would be replaced by that of files, and their functions be lost.
 * So fputws() writes nothing on them, and fgetws() follows a pointer that is made to crash. On such a stream these
 * calls therefore convert, character by character, and read or write bytes. All state is in the stream of bytes: what
 * ungetwc() puts back is what the next call reads, whichever it is.
 */
#include "preload.h"

#include <limits.h>
#include <string.h>
#include <wchar.h>

/* The orientation of a stream on an offloaded socket, which is wide from now on unless it is one of bytes. NULL for
 * the C library's streams. */
static const int *orientation(FILE *file)
{
	int *of = stream_orientation(file);

	if (of && !*of)
		*of = 1;
	return of;
}

EXPORT int fwide(FILE *file, int mode)
{
	int *of = stream_orientation(file);

	if (!of)
		return real()->fwide(file, mode);
	if (!*of && mode)
		*of = mode > 0 ? 1 : -1;
	return *of;
}

static wint_t bad_sequence(FILE *file)
{
	file->_flags |= _IO_ERR_SEEN;
	errno = EILSEQ;
	return WEOF;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static wint_t get_character(FILE *file)
{
	mbstate_t state = { 0 };
	wchar_t character;

	for (;;) {
		int byte = getc_unlocked(file);
		size_t r;

		if (byte == EOF)
			return mbsinit(&state) || ferror_unlocked(file) ? WEOF : bad_sequence(file);
		r = mbrtowc(&character, &(char){ (char)byte }, 1, &state);
		if (r == (size_t)-1)
			return bad_sequence(file);
		if (r != (size_t)-2)
			return (wint_t)character;
	}
}

EXPORT wint_t fgetwc(FILE *file)
{
	const int *of = orientation(file);
	wint_t r = WEOF;

	if (!of)
		return real()->fgetwc(file);
	flockfile(file);
	if (*of > 0)
		r = get_character(file);
	funlockfile(file);
	return r;
}
wint_t getwc(FILE *file) __attribute__((alias("fgetwc"))) EXPORT;

EXPORT wint_t fgetwc_unlocked(FILE *file)
{
	return stream_orientation(file) ? fgetwc(file) : real()->fgetwc_unlocked(file);
}
wint_t getwc_unlocked(FILE *file) __attribute__((alias("fgetwc_unlocked"))) EXPORT;

EXPORT wint_t getwchar(void)
{
	return fgetwc(stdin);
}

EXPORT wint_t getwchar_unlocked(void)
{
	return fgetwc_unlocked(stdin);
}

/* With room for more than the end. An error that comes after some characters is told, except EAGAIN. */
static wchar_t *get_line(wchar_t *line, int room, FILE *file)
{
	int before = file->_flags & _IO_ERR_SEEN, count = 0;
	bool failed;

	file->_flags &= ~_IO_ERR_SEEN;
	while (count < room - 1) {
		wint_t character = get_character(file);

		if (character == WEOF)
			break;
		line[count++] = (wchar_t)character;
		if (character == L'\n')
			break;
	}
	failed = !count || (ferror_unlocked(file) && errno != EAGAIN);
	file->_flags |= before;
	if (failed)
		return NULL;
	line[count] = 0;
	return line;
}

EXPORT wchar_t *fgetws(wchar_t *restrict line, int room, FILE *restrict file)
{
	const int *of = orientation(file);
	wchar_t *r = NULL;

	if (!of)
		return real()->fgetws(line, room, file);
	if (room <= 0 || *of < 0)
		return NULL;
	if (room == 1) {
		*line = 0;
		return line;
	}
	flockfile(file);
	r = get_line(line, room, file);
	funlockfile(file);
	return r;
}

EXPORT wchar_t *fgetws_unlocked(wchar_t *restrict line, int room, FILE *restrict file)
{
	return stream_orientation(file) ? fgetws(line, room, file) : real()->fgetws_unlocked(line, room, file);
}

EXPORT wchar_t *__fgetws_chk(wchar_t *restrict line, size_t size, int room, FILE *restrict file)
{
	if (!stream_orientation(file))
		return real()->__fgetws_chk(line, size, room, file);
	if (room > 0 && (size_t)room > size)
		__chk_fail();
	return fgetws(line, room, file);
}

EXPORT wchar_t *__fgetws_unlocked_chk(wchar_t *restrict line, size_t size, int room, FILE *restrict file)
{
	return stream_orientation(file) ? __fgetws_chk(line, size, room, file) :
					  real()->__fgetws_unlocked_chk(line, size, room, file);
}

EXPORT wint_t ungetwc(wint_t character, FILE *file)
{
	const int *of = orientation(file);
	char bytes[MB_LEN_MAX];
	size_t count;

	if (!of)
		return real()->ungetwc(character, file);
	if (*of < 0 || character == WEOF)
		return WEOF;
	count = wcrtomb(bytes, (wchar_t)character, &(mbstate_t){ 0 });
	if (count == (size_t)-1)
		return WEOF;
	flockfile(file);
	while (count && ungetc((unsigned char)bytes[count - 1], file) != EOF)
		count--;
	funlockfile(file);
	return count ? WEOF : character;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* -1: a character that the locale has no bytes for, or the stream's error. */
static int put_characters(const wchar_t *text, size_t count, FILE *file)
{
	mbstate_t state = { 0 };
	char bytes[512];
	size_t filled = 0;

	for (size_t i = 0; i < count; i++) {
		size_t r = wcrtomb(bytes + filled, text[i], &state);

		if (r == (size_t)-1) {
			fwrite_unlocked(bytes, 1, filled, file);
			bad_sequence(file);
			return -1;
		}
		filled += r;
		if (i + 1 < count && filled + MB_LEN_MAX <= sizeof bytes)
			continue;
		if (fwrite_unlocked(bytes, 1, filled, file) < filled)
			return -1;
		filled = 0;
	}
	return 1;
}

static int put(const wchar_t *text, size_t count, FILE *file, int of)
{
	int r = -1;

	flockfile(file);
	if (of > 0)
		r = put_characters(text, count, file);
	funlockfile(file);
	return r;
}

EXPORT wint_t fputwc(wchar_t character, FILE *file)
{
	const int *of = orientation(file);

	if (!of)
		return real()->fputwc(character, file);
	return put(&character, 1, file, *of) < 0 ? WEOF : (wint_t)character;
}
wint_t putwc(wchar_t character, FILE *file) __attribute__((alias("fputwc"))) EXPORT;

EXPORT wint_t fputwc_unlocked(wchar_t character, FILE *file)
{
	return stream_orientation(file) ? fputwc(character, file) : real()->fputwc_unlocked(character, file);
}
wint_t putwc_unlocked(wchar_t character, FILE *file) __attribute__((alias("fputwc_unlocked"))) EXPORT;

EXPORT wint_t putwchar(wchar_t character)
{
	return fputwc(character, stdout);
}

EXPORT wint_t putwchar_unlocked(wchar_t character)
{
	return fputwc_unlocked(character, stdout);
}

EXPORT int fputws(const wchar_t *restrict text, FILE *restrict file)
{
	const int *of = orientation(file);

	return of ? put(text, wcslen(text), file, *of) : real()->fputws(text, file);
}

EXPORT int fputws_unlocked(const wchar_t *restrict text, FILE *restrict file)
{
	return stream_orientation(file) ? fputws(text, file) : real()->fputws_unlocked(text, file);
}

/* flag: as for the names of fortified programs. 0: none. */
static int print(FILE *file, int of, int flag, const wchar_t *format, va_list arguments)
{
	wchar_t *text = NULL;
	size_t count = 0;
	FILE *memory = of > 0 ? open_wmemstream(&text, &count) : NULL;
	int r;

	if (!memory)
		return -1;
	r = flag ? real()->__vfwprintf_chk(memory, flag, format, arguments) :
		   real()->vfwprintf(memory, format, arguments);
	if (real()->fclose(memory) == 0 && r >= 0 && put(text, count, file, of) < 0)
		r = -1;
	free(text);
	return r;
}

EXPORT int vfwprintf(FILE *restrict file, const wchar_t *restrict format, va_list arguments)
{
	const int *of = orientation(file);

	return of ? print(file, *of, 0, format, arguments) : real()->vfwprintf(file, format, arguments);
}

EXPORT int __vfwprintf_chk(FILE *restrict file, int flag, const wchar_t *restrict format, va_list arguments)
{
	const int *of = orientation(file);

	return of ? print(file, *of, flag, format, arguments) : real()->__vfwprintf_chk(file, flag, format, arguments);
}

EXPORT int vwprintf(const wchar_t *restrict format, va_list arguments)
{
	return vfwprintf(stdout, format, arguments);
}

EXPORT int __vwprintf_chk(int flag, const wchar_t *restrict format, va_list arguments)
{
	return __vfwprintf_chk(stdout, flag, format, arguments);
}

/* A call with its arguments one by one: calls that with a list of them. */
#define WITH_LIST(last, call) \
	{ \
		va_list arguments; \
		int r; \
\
		va_start(arguments, last); \
		r = call; \
		va_end(arguments); \
		return r; \
	}

EXPORT int fwprintf(FILE *restrict file, const wchar_t *restrict format, ...)
	WITH_LIST(format, vfwprintf(file, format, arguments)) EXPORT int wprintf(const wchar_t *restrict format, ...)
		WITH_LIST(format, vfwprintf(stdout, format, arguments)) EXPORT
	int __fwprintf_chk(FILE *restrict file, int flag, const wchar_t *restrict format, ...)
		WITH_LIST(format, __vfwprintf_chk(file, flag, format, arguments)) EXPORT
	int __wprintf_chk(int flag, const wchar_t *restrict format, ...)
		WITH_LIST(format, __vfwprintf_chk(stdout, flag, format, arguments))

	/* --- scanning ----------------------------------------------------------------------------------------------------- */

	typedef int scan_wide(FILE *file, const wchar_t *format, va_list arguments);
typedef int scan_bytes(FILE *file, const char *format, va_list arguments);

/* A conversion stores the same for a format of bytes. Only widths and %n count bytes then. */
static int scan(FILE *file, const wchar_t *format, va_list arguments, scan_wide *wide, scan_bytes *bytes)
{
	const int *of = orientation(file);
	size_t room;
	char *text;
	int r = EOF;

	if (!of)
		return wide(file, format, arguments);
	if (*of < 0)
		return EOF;
	room = wcslen(format) * MB_LEN_MAX + 1;
	text = malloc(room);
	if (text && wcstombs(text, format, room) != (size_t)-1)
		r = bytes(file, text, arguments);
	free(text);
	return r;
}

/* <wchar.h> gives a program of C99 the second of these for their usual names. */
int gnu_vfwscanf(FILE *file, const wchar_t *format, va_list arguments) __asm__("vfwscanf");
int gnu_vwscanf(const wchar_t *format, va_list arguments) __asm__("vwscanf");
int gnu_fwscanf(FILE *file, const wchar_t *format, ...) __asm__("fwscanf");
int gnu_wscanf(const wchar_t *format, ...) __asm__("wscanf");
int gnu_vfscanf(FILE *file, const char *format, va_list arguments) __asm__("vfscanf");

/* "%a" and "%i" have had three meanings, each with a name of its own. */
#define SCANNERS(prefix, wide, bytes) \
	EXPORT int prefix##vfwscanf(FILE *restrict file, const wchar_t *restrict format, va_list arguments) \
	{ \
		return scan(file, format, arguments, wide, bytes); \
	} \
	EXPORT int prefix##vwscanf(const wchar_t *restrict format, va_list arguments) \
	{ \
		return prefix##vfwscanf(stdin, format, arguments); \
	} \
	EXPORT int prefix##fwscanf(FILE *restrict file, const wchar_t *restrict format, ...) \
		WITH_LIST(format, prefix##vfwscanf(file, format, arguments)) \
			EXPORT int prefix##wscanf(const wchar_t *restrict format, ...) \
				WITH_LIST(format, prefix##vfwscanf(stdin, format, arguments))

/* Looked up when a program calls it, which has a C library with it then. Where there is none, to look would allocate:
 * not while the library is loaded (real.c). */
static int next_isoc23_vfwscanf(FILE *file, const wchar_t *format, va_list arguments)
{
	static scan_wide *_Atomic next;

	if (!next)
		next = (scan_wide *)dlsym(RTLD_NEXT, "__isoc23_vfwscanf");
	return next(file, format, arguments);
}

SCANNERS(gnu_, real()->vfwscanf, gnu_vfscanf)
SCANNERS(__isoc99_, real()->__isoc99_vfwscanf, __isoc99_vfscanf)
SCANNERS(__isoc23_, next_isoc23_vfwscanf, __isoc23_vfscanf)
