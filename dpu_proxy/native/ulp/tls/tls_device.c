/* Network cards that do TLS, as their drivers report. They are asked once per process, which may then give up the
 * privilege to ask. */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls.h"

#define FEATURES_MAX 256u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct tls_device found;

/* One ethtool command for one interface. */
static bool ask(int fd, const char *interface, void *command)
{
	struct ifreq request = { 0 };

	strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
	request.ifr_data = command;
	return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

/* How many features the kernel knows; the same for all interfaces. */
static uint32_t feature_count(int fd, const char *interface)
{
	union { /* with room for the one number that is returned */
		struct ethtool_sset_info info;
		uint8_t room[sizeof(struct ethtool_sset_info) + sizeof(uint32_t)];
	} set = { .info = { .cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1u << ETH_SS_FEATURES } };

	if (!ask(fd, interface, &set) || !set.info.sset_mask)
		return 0;
	return set.info.data[0] < FEATURES_MAX ? set.info.data[0] : FEATURES_MAX;
}

static bool is_active(int fd, const char *interface, uint32_t feature)
{
	union {
		struct ethtool_gfeatures head;
		uint8_t room[sizeof(struct ethtool_gfeatures) +
			     FEATURES_MAX / 32 * sizeof(struct ethtool_get_features_block)];
	} features = { .head = { .cmd = ETHTOOL_GFEATURES, .size = FEATURES_MAX / 32 } };

	return ask(fd, interface, &features) && features.head.features[feature / 32].active >> feature % 32 & 1;
}

/* Adds the directions that the interface offloads. */
static void ask_of_tls(int fd, const char *interface, struct tls_device *out)
{
	uint32_t count = feature_count(fd, interface);
	struct ethtool_gstrings *names = calloc(1, sizeof *names + (size_t)count * ETH_GSTRING_LEN);

	if (!names)
		return;
	*names = (struct ethtool_gstrings){ .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_FEATURES, .len = count };
	if (!count || !ask(fd, interface, names))
		count = 0;
	for (uint32_t i = 0; i < count; i++) {
		const char *name = (const char *)names->data + (size_t)i * ETH_GSTRING_LEN;

		if (!strncmp(name, "tls-hw-tx-offload", ETH_GSTRING_LEN))
			out->send |= is_active(fd, interface, i);
		else if (!strncmp(name, "tls-hw-rx-offload", ETH_GSTRING_LEN))
			out->receive |= is_active(fd, interface, i);
	}
	free(names);
}

static void find(void)
{
	struct if_nameindex *interfaces = if_nameindex();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (struct if_nameindex *i = interfaces; fd >= 0 && i && i->if_index; i++)
		ask_of_tls(fd, i->if_name, &found);
	if (fd >= 0)
		close(fd);
	if_freenameindex(interfaces);
}

struct tls_device tls_device(void)
{
	pthread_once(&once, find);
	return found;
}
