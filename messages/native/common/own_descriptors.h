/*
 * The library's own descriptors, as opposed to those of the program that it is part of. With the interposer loaded
 * (which sets the hooks) they are moved out of the program's way, and the program cannot close them by mistake; without
 * it xts_disown() is only close().
 */
#ifndef XTS_OWN_H
#define XTS_OWN_H

struct xts_own_hooks {
	int (*own)(int fd);     /* returns fd, or its new number */
	void (*disown)(int fd); /* fd is about to be closed */
};
extern struct xts_own_hooks xts_own_hooks;

/* Takes a new descriptor (-1: none) that nothing refers to yet. Returns it, perhaps under another number; errno is
 * kept. */
static inline int xts_own(int fd)
{
	return fd >= 0 && xts_own_hooks.own ? xts_own_hooks.own(fd) : fd;
}

/* The program gets a descriptor that was taken (-1: none): it may watch it, as any other. */
static inline void xts_lend(int fd)
{
	if (fd >= 0 && xts_own_hooks.disown)
		xts_own_hooks.disown(fd);
}

void xts_own_close(int fd);

#endif
