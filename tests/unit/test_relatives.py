"""The file that relatives have in common: slots of processes that have died (host_lib/native/processes/relatives.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from beds.native_core import TOP, compiler

NATIVE = TOP / "host_lib" / "native"
#: Includes the source, since another process does something between two steps of one look.
PROGRAM = r"""
#include "processes/relatives.c"

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
	printf("dead: %d\n", !lives(f, 7));
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
