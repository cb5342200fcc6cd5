/* What only workers may see of connections that go to another process; see private_bytes.h. */
#include "processes/private_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "queues/sealed_memory.h"

int private_write(int fd, const uint8_t *data, uint32_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		bytes -= (uint32_t)n;
	}
	return 0;
}

void private_drop(uint8_t *data, uint32_t bytes)
{
	if (data)
		explicit_bzero(data, bytes);
	free(data);
}

int private_read(int fd, uint8_t **out, uint32_t bytes)
{
	uint32_t done = 0;
	uint8_t *data;

	/* memory never makes a reader wait, and nothing is allocated for more than it has */
	if (bytes > PRIVATE_BYTES_MAX || xts_sealed_bytes(fd) < bytes)
		return -EBADMSG;
	data = malloc(bytes + 1u);
	if (!data)
		return -ENOMEM;
	while (done < bytes) {
		ssize_t n = read(fd, data + done, bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			private_drop(data, done);
			return -EBADMSG;
		}
		done += (uint32_t)n;
	}
	*out = data;
	return 0;
}
