"""The file that relatives have in common: slots of processes that have died, other versions (relatives_file.h)."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

from beds.native_core import TOP, compiler

NATIVE = TOP / "host_lib" / "native"
#: Includes the source, since another process does something between two steps of one look.
PROGRAM = r"""
#include "processes/relatives_file.c"
#include "processes/relatives.c"
#include "processes/relatives_fork.c"

#include <stdio.h>
#include <sys/wait.h>

struct xts_own_hooks xts_own_hooks;

void xts_own_close(int fd) { close(fd); }
void xts_release(void *memory) { free(memory); }

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static int ends[2];

/* A child with the connection, in the same slot each time. Returns when it runs. */
static pid_t child_with(struct common *c)
{
	char byte;
	pid_t pid;

	if (!relatives_give_child(c))
		_exit(2);
	pid = fork();
	relatives_after_fork(!pid);
	if (!pid) {
		(void)!write(ends[1], "x", 1);
		pause();
	}
	(void)!read(ends[0], &byte, 1);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	struct common *c = relatives_add();
	struct family *f = family_of(c);
	uint64_t since;
	pid_t second;

	if (pipe(ends))
		return 2;
	for (uint32_t slot = 1; slot < RELATIVES_MAX; slot++)
		if (slot != 7)
			atomic_store(&f->file->slot[slot], now_ns() & ~UINT64_C(1)); /* reserved for somebody else */
	end(child_with(c));
	since = atomic_load(&f->file->slot[7]);
	printf("dead: %d\n", !family_lives(f, 7));
	second = child_with(c); /* between two steps of others_have() */
	printf("reused: %d\n", is_reused(f, c, 7, since));
	printf("others have it: %d\n", others_have(f, c, NULL));
	end(second);
	printf("now: %d\n", others_have(f, c, NULL));
	return 0;
}
"""


def test_a_slot_of_a_dead_process_that_another_takes_at_that_moment(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text("#include <signal.h>\n" + PROGRAM)
    includes = [f"-I{NATIVE}", f"-I{TOP / 'messages' / 'native'}"]
    command = [compiler(), "-std=c11", "-D_GNU_SOURCE", "-w", *includes, "-o", str(program), str(source), "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    done = subprocess.run([str(program)], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == ["dead: 1", "reused: 1", "others have it: 1", "now: 0"]


#: What a server is told, and what the next one is told then. Each line has the files, by the order of their making.
TOLD = r"""
#include "processes/relatives_file.c"
#include "processes/relatives.c"
#include "processes/relatives_fork.c"

#include <stdio.h>

struct xts_own_hooks xts_own_hooks;

void xts_own_close(int fd) { close(fd); }
void xts_release(void *memory) { free(memory); }
uint64_t now_ns(void) { return 1; }

static struct family *made[4];

static void tell(const void *context, int fd)
{
	for (unsigned i = 0; i < 4; i++)
		if (made[i] && made[i]->fd == fd)
			printf("%u", i);
}

static void tells(uint64_t *told)
{
	relatives_tell(told, tell, NULL);
	printf(".\n");
}

int main(void)
{
	uint64_t told = 0, next = 0;
	struct common *c;

	relatives_begin();
	made[0] = families;
	tells(&told); /* it is empty */
	made[1] = family_join(dup(made[0]->fd), 5, &own_layout, sizeof(struct relatives_file)); /* as an inherited one */
	made[1]->entries = 1;
	made[1]->complete = true;
	tells(&told);
	c = relatives_add(); /* in the first */
	tells(&told);
	tells(&told);
	made[0]->complete = true;
	relatives_add();
	made[2] = family_incomplete();
	tells(&told);
	tells(&next);
	relatives_drop(c);
	made[0] = NULL;
	next = 0;
	tells(&next);
	return 0;
}
"""


def test_a_server_is_told_of_each_file_once(tmp_path: Path) -> None:
    """Whichever of them gets its first connection later."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(TOLD)
    includes = [f"-I{NATIVE}", f"-I{TOP / 'messages' / 'native'}"]
    command = [compiler(), "-std=c11", "-D_GNU_SOURCE", "-w", *includes, "-o", str(program), str(source), "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    done = subprocess.run([str(program)], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines() == [".", "1.", "0.", ".", "2.", "102.", "12."]


#: Files that other versions have made: their entries are longer and lie elsewhere. What it prints: the result for each.
OTHER_VERSIONS = r"""
#include "processes/relatives_file.c"
#include "processes/relatives.c"
#include "processes/relatives_fork.c"

#include <stdio.h>

struct xts_own_hooks xts_own_hooks;

void xts_own_close(int fd) { close(fd); }
void xts_release(void *memory) { free(memory); }
uint64_t now_ns(void) { return 1000; }

static int made(uint32_t version, uint32_t compatible, uint32_t slots, uint32_t entry_bytes, size_t bytes)
{
	uint32_t at = offsetof(struct relatives_file, common) + 64;
	struct layout l = { MAGIC, version, compatible, slots, 3, at, entry_bytes };
	int fd = memfd_create("later", MFD_ALLOW_SEALING);
	uint64_t has = 1 << 5;

	if (ftruncate(fd, (off_t)bytes) || pwrite(fd, &l, sizeof l, 0) != sizeof l ||
		pwrite(fd, &has, sizeof has, (off_t)(at + 2 * entry_bytes + offsetof(struct common, has))) < 0 ||
		fcntl(fd, F_ADD_SEALS, SEALS))
		_exit(2);
	return fd;
}

static void try(int fd, uint32_t index)
{
	struct relatives_place place = { fd, 5, index };
	struct common *c;
	int r = relatives_adopt(&place, &c);

	printf("%d %d\n", r, !r && relatives_pass(c).index == index && (uint8_t *)c - (uint8_t *)families->file > 0);
}

int main(void)
{
	size_t room = sizeof(struct relatives_file), longer = sizeof(struct common) + 64;

	try(made(2, 1, RELATIVES_MAX, (uint32_t)longer, room), 2);
	try(made(2, 1, RELATIVES_MAX, (uint32_t)longer, room), 1);  /* not this process's */
	try(made(2, 1, RELATIVES_MAX, (uint32_t)longer, room), 3);  /* no such entry */
	try(made(2, 2, RELATIVES_MAX, (uint32_t)longer, room), 2);
	try(made(2, 1, RELATIVES_MAX, 64, room), 2);                /* shorter than those of the first version */
	try(made(2, 1, RELATIVES_MAX + 1, (uint32_t)longer, room), 2);
	try(made(2, 1, RELATIVES_MAX, (uint32_t)room, room), 2);    /* beyond the end */
	try(memfd_create("nothing", 0), 2);
	return 0;
}
"""


def test_a_file_of_another_version_says_how_it_is_laid_out(tmp_path: Path) -> None:
    source = tmp_path / "versions.c"
    source.write_text(OTHER_VERSIONS)
    includes = [f"-I{NATIVE}", f"-I{TOP / 'messages' / 'native'}"]
    command = [compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-O1", *includes, str(source), "-o", str(tmp_path / "run")]
    subprocess.run([*command, "-lpthread"], check=True)
    told = subprocess.run([tmp_path / "run"], check=True, capture_output=True, text=True, timeout=20).stdout
    no, other = f"{-errno.ENOENT} 0", f"{-errno.EPROTONOSUPPORT} 0"
    assert told.splitlines() == ["0 1", no, no, other, no, no, no, no]
