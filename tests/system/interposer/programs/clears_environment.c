/*
 * A program that does away with its environment in one of four ways before its first socket, connects to ADDRESS PORT,
 * and prints what it receives. Compiled with calls of libxts (-DXTS), and without, for the interposer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef XTS
#include <xts.h>
#define socket xts_socket
#define connect xts_connect
#define recv xts_recv
#endif

static void do_away(const char *how)
{
	static char *others[] = { "PATH=/usr/bin", NULL };

	if (!strcmp(how, "clearenv"))
		clearenv();
	else if (!strcmp(how, "replaced"))
		environ = others;
	else if (!strcmp(how, "unset"))
		unsetenv("XTS_ENDPOINT");
	else if (!strcmp(how, "overwritten"))
		for (char **entry = environ; *entry; entry++)
			memset(*entry, 'x', strlen(*entry));
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	char answer[64];
	ssize_t n;
	int s;

	if (argc != 4)
		return 2;
	do_away(argv[1]);
	inet_pton(AF_INET, argv[2], &server.sin_addr);
	server.sin_port = htons((uint16_t)atoi(argv[3]));
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&server, sizeof server) < 0) {
		perror("connect");
		return 1;
	}
	n = recv(s, answer, sizeof answer, 0);
	if (n > 0)
		fwrite(answer, 1, (size_t)n, stdout);
	return n <= 0;
}
