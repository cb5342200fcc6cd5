/*
 * Why the loader will not preload the interposer into a program that this one starts. The ELF headers and the rights of
 * its file show it, as for the first program of `xts run`, which cli/executable.py looks at. Scripts are followed to
 * their interpreter. The caller may be the child of a program with threads: nothing is allocated.
 */
#include "not_preloaded.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload.h"

#define SCRIPTS_MAX 5  /* interpreters that are scripts themselves: the kernel's limit */
#define HEADERS_MAX 32 /* program headers that are looked at; the loader's name is among the first */

/* What an executable has at its beginning. */
struct executable {
	Elf64_Ehdr header;
	char loader[PATH_MAX]; /* empty: none */
};

static bool is_elf(const struct executable *e)
{
	return !memcmp(e->header.e_ident, ELFMAG, SELFMAG);
}

static bool is_of_this_machine(const struct executable *e)
{
	static const union {
		uint16_t number;
		uint8_t first;
	} one = { .number = 1 };
	const uint8_t *ident = e->header.e_ident;

	return ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == (one.first ? ELFDATA2LSB : ELFDATA2MSB);
}

static void read_loader(struct executable *e, int fd)
{
	for (unsigned i = 0; i < e->header.e_phnum && i < HEADERS_MAX; i++) {
		Elf64_Phdr entry;
		off_t at = (off_t)(e->header.e_phoff + i * sizeof entry);
		ssize_t n;

		if (real()->pread(fd, &entry, sizeof entry, at) != (ssize_t)sizeof entry)
			return;
		if (entry.p_type != PT_INTERP || entry.p_filesz >= sizeof e->loader)
			continue;
		n = real()->pread(fd, e->loader, entry.p_filesz, (off_t)entry.p_offset);
		e->loader[n > 0 ? n : 0] = '\0';
	}
}

/* The interpreter of a script's first line, in `path`. False: there is none that can be followed. */
static bool follow_script(int fd, char path[PATH_MAX])
{
	char line[PATH_MAX], *name = line + 2, *end;
	ssize_t n = real()->pread(fd, line, sizeof line - 1, 0);

	if (n < 3)
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	name += strspn(name, " \t");
	end = name + strcspn(name, " \t");
	*end = '\0';
	strcpy(path, name); /* it is shorter than the line */
	return *name == '/';
}

/* Opens the executable that runs in the end, whose name is left in `path`. -1: it cannot be read. */
static int open_executable(char path[PATH_MAX], struct executable *e)
{
	for (int i = 0; i <= SCRIPTS_MAX; i++) {
		int fd = real()->open(path, O_RDONLY | O_CLOEXEC);
		bool follows;

		if (fd < 0)
			return -1;
		*e = (struct executable){ 0 };
		if (real()->pread(fd, &e->header, sizeof e->header, 0) == (ssize_t)sizeof e->header && is_elf(e))
			return fd;
		follows = !memcmp(&e->header, "#!", 2) && follow_script(fd, path);
		real()->close(fd);
		if (!follows)
			return -1;
	}
	return -1;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* If a program gains privilege when it is started, the loader ignores LD_PRELOAD. */
static const char *privilege(int fd)
{
	struct stat status;

	if (real()->fstat(fd, &status) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return NULL;
	if (status.st_mode & S_ISUID && status.st_uid != getuid())
		return "it is set-uid";
	if (status.st_mode & S_ISGID && status.st_mode & S_IXGRP && status.st_gid != getgid())
		return "it is set-gid";
	if (getuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return "it has file capabilities";
	return NULL;
}

static const char *obstacle(const char *path, struct executable *e, int fd)
{
	char own_path[PATH_MAX] = "/proc/self/exe";
	struct executable own;
	int own_fd = open_executable(own_path, &own);
	bool same_machine = is_of_this_machine(e) && (own_fd < 0 || e->header.e_machine == own.header.e_machine);

	if (own_fd >= 0) {
		read_loader(&own, own_fd);
		real()->close(own_fd);
	}
	if (!same_machine)
		return "it is of another architecture";
	read_loader(e, fd);
	if (!*e->loader && strncmp(name_of(path), "ld-", 3) != 0) /* not the loader itself */
		return "it is statically linked";
	if (*e->loader && own_fd >= 0 && *own.loader && strcmp(name_of(e->loader), name_of(own.loader)) != 0)
		return "its loader is of another C library";
	return privilege(fd);
}

/* The file that execvp(3) would start. */
static bool find(const char *program, char path[PATH_MAX])
{
	const char *folders = getenv("PATH");
	size_t length;

	if (strchr(program, '/'))
		return snprintf(path, PATH_MAX, "%s", program) < PATH_MAX;
	for (; folders && *folders; folders += length + (folders[length] == ':')) {
		length = strcspn(folders, ":");
		if (snprintf(path, PATH_MAX, "%.*s/%s", (int)length, folders, program) < PATH_MAX &&
		    access(path, X_OK) == 0)
			return true;
	}
	return false;
}

static const char *gains_privilege(const char *path, struct executable *e, int fd)
{
	(void)path;
	(void)e;
	return privilege(fd);
}

static const char *look(const char *program, const char *(*at)(const char *path, struct executable *e, int fd))
{
	char path[PATH_MAX];
	struct executable e;
	const char *why;
	int fd;

	if (!find(program, path))
		return NULL;
	fd = open_executable(path, &e);
	if (fd < 0)
		return NULL;
	why = at(path, &e, fd);
	real()->close(fd);
	return why;
}

const char *why_not_preloaded(const char *program)
{
	return look(program, obstacle);
}

const char *why_never_preloaded(const char *program)
{
	return look(program, gains_privilege);
}
