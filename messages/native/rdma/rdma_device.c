/*
 * Finding the RDMA device of an end.
 *
 * The device is found by the interface under it, as other kinds find theirs: the addresses of an RDMA device (GIDs)
 * name it. The queue pair is of the first port that has one of them.
 */
#include "rdma_inside.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define GIDS_MAX 256

/* The hardware address of an interface: of iWARP's devices it is all that names the interface. 0 or -errno. */
static int interface_mac(uint32_t ifindex, uint8_t *mac)
{
	struct ifreq request = { 0 };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (!if_indextoname(ifindex, request.ifr_name) || ioctl(fd, SIOCGIFHWADDR, &request) < 0)
		error = -errno;
	close(fd);
	memcpy(mac, request.ifr_hwaddr.sa_data, 6);
	return error;
}

/* The port of this device that is at the interface; 0: none. */
static uint8_t port_at(struct ibv_context *device, uint32_t ifindex, const uint8_t *mac)
{
	struct ibv_gid_entry *gid = calloc(GIDS_MAX, sizeof *gid);
	ssize_t count = gid ? ibv_query_gid_table(device, gid, GIDS_MAX, 0) : 0;
	uint8_t port = 0;

	for (ssize_t i = 0; i < count && !port; i++) {
		bool iwarp = device->device->transport_type == IBV_TRANSPORT_IWARP;

		if (gid[i].ndev_ifindex == ifindex || (iwarp && !memcmp(gid[i].gid.raw, mac, 6)))
			port = (uint8_t)gid[i].port_num;
	}
	free(gid);
	return port;
}

int rdma_device_open(struct rdma_end *e, uint32_t ifindex)
{
	struct ibv_device **list;
	uint8_t mac[6];
	int count = 0, error = interface_mac(ifindex, mac), refused = ENODEV;

	if (error)
		return error;
	list = ibv_get_device_list(&count);
	if (!list)
		return errno == ENOSYS ? -ENODEV : -errno;
	for (int i = 0; i < count && !e->device; i++) {
		struct ibv_context *device = ibv_open_device(list[i]);

		if (!device) {
			refused = errno ? errno : EACCES;
			continue;
		}
		e->port = port_at(device, ifindex, mac);
		if (e->port)
			e->device = device;
		else
			(void)ibv_close_device(device);
	}
	ibv_free_device_list(list);
	return e->device ? 0 : -refused;
}
