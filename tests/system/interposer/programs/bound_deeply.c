/* A library that a program loads with RTLD_DEEPBIND: it makes a connection, and sends through it both ways. It keeps
 * addresses of functions in each way that a compiler and a linker know, and has one of a name of the C library itself. */
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* in memory that the loader protects */
static const struct {
	ssize_t (*receive)(int, void *, size_t, int);
	int (*finish)(int);
} table = { recv, close };
static ssize_t (*writes)(int, const void *, size_t) = write;

int own_calls;

/* What RTLD_DEEPBIND is for. */
int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
	(void)fd, (void)address, (void)length;
	return ++own_calls;
}

int bound_deeply(uint32_t host)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = host };
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
	char got[8] = "";

	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(client, (struct sockaddr *)&address, length))
		return errno;
	server = accept(listener, NULL, NULL);
	if (server < 0 || writes(client, "there", 5) != 5 || table.receive(server, got, 5, MSG_WAITALL) != 5 ||
	    send(server, "back", 4, 0) != 4 || read(client, got, sizeof got) != 4 || memcmp(got, "backe", 5))
		return errno ? errno : EIO;
	if (getpeername(client, NULL, NULL) != 1)
		return EXDEV;
	return table.finish(client) || table.finish(server) || close(listener);
}
